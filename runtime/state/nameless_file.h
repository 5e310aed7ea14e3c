// A scratch file that no folder lists: its space is free again however this process ends, kill -9 included.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/base/error.h"

namespace ds {

/// Offsets and lengths that O_DIRECT takes on every file system and disk: a page, and a multiple of any disk's sector.
inline constexpr int64_t kDirectAlignment = 4096;

/// What a failure in a scratch folder is told as: "FOLDER: DOING: errno's text; what to do".
RuntimeError FolderError(const std::string& folder, const std::string& doing, int error);

class NamelessFile {
 public:
  /// Made with O_TMPFILE; where the file system has no such files under a name that is removed at once (".ds-nameless-"
  /// and more). A process killed between the two leaves an empty file, which the next NamelessFile there removes.
  /// `folder`: an absolute path. Throws RuntimeError that names it: no such folder, not a folder, not writable, a
  /// read-only file system, no room.
  explicit NamelessFile(std::string folder);
  ~NamelessFile();
  NamelessFile(NamelessFile&& other) noexcept;
  NamelessFile(const NamelessFile&) = delete;
  NamelessFile& operator=(const NamelessFile&) = delete;

  int fd() const { return fd_; }
  const std::string& folder() const { return folder_; }

  /// Gives the file `bytes` bytes of the disk, zeros, so that no later write finds the disk full (but where the file
  /// system copies on write). By writing where the file system cannot reserve. Throws RuntimeError with `wanted_by`,
  /// the bytes wanted, the bytes free, and what to do.
  void Reserve(int64_t bytes, const std::string& wanted_by);

  /// Switches to O_DIRECT, past the page cache, and tries it with the first bytes, which it writes as zeros; false,
  /// with `why_not`, where that does not work or means nothing. Not before Reserve. Throws RuntimeError when the disk
  /// fails.
  bool SetDirect();
  bool direct() const { return direct_; }
  const std::string& why_not_direct() const { return why_not_; }
  /// Of memory, for O_DIRECT; 1 before.
  int64_t memory_alignment() const { return memory_alignment_; }

  /// Waits until all that was written is on the disk. Throws RuntimeError.
  void Sync() const;

 private:
  void MakeNamed();
  void Fill(int64_t bytes, const std::string& wanted_by, int64_t free) const;

  std::string folder_, why_not_;
  int fd_ = -1;
  bool direct_ = false;
  int64_t memory_alignment_ = 1;
};

}  // namespace ds
