// What the MPI communicators of one rank share: MPI itself, one call at a time; the store; the tags of groups.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/mpi/library.h"
#include "runtime/comm/store.h"

namespace ds {

/// MPI for the threads of this process. `Do` hands MPI to one of them at a time.
class MpiWorld {
 public:
  explicit MpiWorld(std::unique_ptr<MpiLibrary> mpi) : mpi_(std::move(mpi)) {}

  template <class Body>
  auto Do(Body body) {
    std::lock_guard lock(mutex_);
    return body(*mpi_);
  }
  int rank() const { return mpi_->rank(); }
  int size() const { return mpi_->size(); }
  std::string version() const { return mpi_->version(); }

  /// A tag for messages of a group that `rank` leads, which no other group of any rank has. Throws RuntimeError when
  /// MPI has no more.
  int NewTag();

  /// Ends MPI: waits for all ranks.
  void Finalize() { mpi_->Finalize(); }

 private:
  std::unique_ptr<MpiLibrary> mpi_;
  std::mutex mutex_;
  int tags_ = 0;  ///< that this rank gave out
};

/// The rendezvous store over MPI: what a rank leaves goes to every other at once. For small values.
class MpiStore final : public Board {
 public:
  explicit MpiStore(MpiWorld& world) : world_(world) {}
  ~MpiStore() override;  ///< waits a moment for what is on its way

  void Set(const std::string& key, const std::string& value) override;
  std::string Get(const std::string& key, std::chrono::milliseconds timeout) override;
  bool Find(const std::string& key, std::string& value) override;

 private:
  struct Outgoing {
    std::shared_ptr<std::string> bytes;
    MpiLibrary::Request request = nullptr;
  };
  /// Takes in what has arrived, and forgets what was sent. Under the lock.
  void Progress();

  MpiWorld& world_;
  std::mutex mutex_;
  std::map<std::string, std::string> values_;
  std::vector<Outgoing> outgoing_;
};

struct MpiOptions {
  int rank = 0, size = 1;                       ///< the first `size` ranks of MPI's world
  std::string interface_address = "127.0.0.1";  ///< that connections bind by which a peer's end is noticed
  std::chrono::milliseconds timeout{600'000};
};

/// A factory of communicators whose bytes go over MPI. MPI does not tell that a peer ended: each communicator has a
/// connection over TCP to every peer beside it, which does, and carries aborts (GlooGroup). `store`, `world`: kept
/// alive by the caller.
CommunicatorFactory MpiFactory(const MpiOptions& options, MpiWorld& world, Store& store);

}  // namespace ds
