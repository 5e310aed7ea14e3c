// Reads and writes that are under way at once: by io_uring where the kernel allows it, else by a pool of threads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace ds {

enum class IoBackend : uint8_t { any, io_uring, threads };
const char* NameOf(IoBackend backend);

/// One read or write of one file.
struct IoBlock {
  int file = 0;  ///< its place in the queue's list of files
  bool write = false;
  int64_t offset = 0, bytes = 0;  ///< at most 1 GiB
  char* memory = nullptr;         ///< stays the caller's, and is left alone until the block is done
  int slot = 0;                   ///< names it; one block a slot
};

struct IoDone {
  int slot = 0;
  int64_t result = 0;  ///< bytes moved, fewer than asked for at times; or minus errno
};

/// Owned by one thread at a time. At most `depth` blocks are under way. Nothing may be under way when it ends.
class IoQueue {
 public:
  virtual ~IoQueue() = default;
  /// Takes the block; it may begin before the next Wait.
  virtual void Submit(const IoBlock& block) = 0;
  /// Blocks that were submitted begin now.
  virtual void Begin() = 0;
  /// Waits until a block is done. One must be under way.
  virtual IoDone Wait() = 0;
  /// Has the kernel keep the memory's pages for blocks that lie in it; false where it does not (it may be of another
  /// kind, or beyond RLIMIT_MEMLOCK): they are moved all the same, and a little slower. The memory outlives the queue.
  virtual bool Register(char* memory, int64_t bytes) = 0;
};

/// `files` are descriptors that outlive the queue. Throws RuntimeError when the backend does not work here; `any`: of
/// threads alone.
std::unique_ptr<IoQueue> MakeIoQueue(IoBackend backend, const std::vector<int>& files, int depth);

/// Why io_uring does not work for this process; empty where it does.
std::string WhyNoIoUring();

namespace detail {
/// Null, with errno, where the kernel refuses; ENOSYS: built without liburing.
std::unique_ptr<IoQueue> MakeIoRing(const std::vector<int>& files, int depth);
std::unique_ptr<IoQueue> MakeIoThreads(const std::vector<int>& files, int depth);
bool BuiltWithIoUring();
}  // namespace detail

}  // namespace ds
