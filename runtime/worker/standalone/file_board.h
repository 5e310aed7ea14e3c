// A rendezvous store in a folder that all ranks share: where they have no MPI.
#pragma once

#include <filesystem>

#include "runtime/comm/store.h"

namespace ds {

/// Values are files of this user's, written under another name and renamed. The folder may be entered by this user
/// alone.
class FileBoard final : public Board {
 public:
  /// `make`: makes the folder (one rank does; what an earlier launch left under this name is removed); the others wait
  /// for it, up to `timeout`. Throws RuntimeError, also where the folder is another user's.
  FileBoard(std::filesystem::path folder, bool make, std::chrono::milliseconds timeout);

  void Set(const std::string& key, const std::string& value) override;
  std::string Get(const std::string& key, std::chrono::milliseconds timeout) override;
  bool Find(const std::string& key, std::string& value) override;

  void Remove() noexcept;  ///< the folder

 private:
  std::filesystem::path PathOf(const std::string& key) const;
  std::filesystem::path folder_;
};

}  // namespace ds
