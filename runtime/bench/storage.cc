#include "runtime/bench/storage.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <thread>

#include "runtime/base/error.h"
#include "runtime/plan/price.h"

namespace ds {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kAlignment = 4096;  // of O_DIRECT's memory, offsets and lengths: a page, and every disk's sector
constexpr int64_t kFreeFactor = 4;

double SecondsSince(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

/// A page-aligned block of bytes that compress badly: some disks and file systems compress.
class Block {
 public:
  explicit Block(int64_t bytes, uint64_t seed) : data_(std::aligned_alloc(kAlignment, static_cast<size_t>(bytes))) {
    if (!data_) throw RuntimeError("no memory for a block of " + FormatBytes(bytes));
    uint64_t* const words = static_cast<uint64_t*>(data_.get());
    for (int64_t i = 0; i < bytes / 8; ++i) {
      seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;  // Marsaglia's xorshift
      words[i] = seed;
    }
  }
  char* data() const { return static_cast<char*>(data_.get()); }

 private:
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  std::unique_ptr<void, Free> data_;
};

/// The file that is measured with.
class NamelessFile {
 public:
  NamelessFile(const std::filesystem::path& folder, bool direct) : folder_(folder.string()) {
    fd_ = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd_ < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL || errno == ENOENT)) MakeNamed();
    if (fd_ < 0) throw UsageError(SystemError("cannot make a file in " + folder_, errno).what());
    if (direct) SetDirect();
  }
  ~NamelessFile() { ::close(fd_); }
  NamelessFile(const NamelessFile&) = delete;
  NamelessFile& operator=(const NamelessFile&) = delete;

  bool direct() const { return direct_; }

  void Write(const char* data, int64_t bytes, int64_t offset) const {
    for (int64_t at = 0; at < bytes;) {
      const ssize_t n = ::pwrite(fd_, data + at, static_cast<size_t>(bytes - at), offset + at);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) throw SystemError("cannot write to a file in " + folder_, n < 0 ? errno : ENOSPC);
      at += n;
    }
  }
  void Read(char* data, int64_t bytes, int64_t offset) const {
    for (int64_t at = 0; at < bytes;) {
      const ssize_t n = ::pread(fd_, data + at, static_cast<size_t>(bytes - at), offset + at);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) throw SystemError("cannot read a file in " + folder_, errno);
      if (n == 0) throw RuntimeError("a file in " + folder_ + " lost bytes that were written to it");
      at += n;
    }
  }
  void Sync() const {
    if (::fsync(fd_) != 0) throw SystemError("cannot sync a file in " + folder_, errno);
  }
  /// Frees the file's blocks, so that every measurement writes to new ones.
  void Empty() const {
    if (::ftruncate(fd_, 0) != 0) throw SystemError("cannot empty a file in " + folder_, errno);
  }
  /// Asks the system to forget what it caches: matters where it must cache.
  void DropCache() const { ::posix_fadvise(fd_, 0, 0, POSIX_FADV_DONTNEED); }

 private:
  void MakeNamed() {
    std::string name = folder_ + "/.ds-bench-XXXXXX";
    fd_ = ::mkostemp(name.data(), O_CLOEXEC);
    if (fd_ < 0) return;
    if (::unlink(name.c_str()) == 0) return;
    const int error = errno;
    ::close(fd_);
    throw SystemError("cannot unlink " + name, error);
  }

  /// Some file systems refuse the flag, others the first write with it.
  void SetDirect() {
    const int flags = ::fcntl(fd_, F_GETFL);
    if (flags < 0 || ::fcntl(fd_, F_SETFL, flags | O_DIRECT) != 0) return;
    const Block block(kAlignment, 1);
    ssize_t n;
    do n = ::pwrite(fd_, block.data(), kAlignment, 0);
    while (n < 0 && errno == EINTR);
    const int error = errno;
    direct_ = n == kAlignment;
    if (!direct_ && ::fcntl(fd_, F_SETFL, flags) != 0) error_ = errno;
    if (!direct_ && (error_ != 0 || (n < 0 && error != EINVAL && error != EOPNOTSUPP))) {
      ::close(fd_);
      throw SystemError("cannot write to a file in " + folder_, error_ != 0 ? error_ : error);
    }
  }

  const std::string folder_;
  int fd_ = -1, error_ = 0;
  bool direct_ = false;
};

/// Moves blocks 0, 1, ... of the file by as many threads as there are buffers, each taking the next one, until all are
/// moved or the time is over: what was moved is the file's begin. Returns how many blocks were. Rethrows the first
/// error of a thread.
int64_t MoveBlocks(const NamelessFile& file, bool write, int64_t block_bytes, int64_t count,
                   const std::vector<Block>& buffers, double seconds) {
  std::atomic<int64_t> next{0}, moved{0};
  std::atomic<bool> failed{false};
  std::exception_ptr error;
  std::mutex mutex;
  const auto begin = Clock::now();
  const auto work = [&](size_t thread) {
    try {
      while (!failed && SecondsSince(begin) < seconds) {
        const int64_t block = next++;
        if (block >= count) return;
        char* const data = buffers[thread].data();
        write ? file.Write(data, block_bytes, block * block_bytes) : file.Read(data, block_bytes, block * block_bytes);
        ++moved;
      }
    } catch (...) {
      failed = true;
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> threads;
    for (size_t thread = 1; thread < buffers.size(); ++thread) threads.emplace_back(work, thread);
    work(0);
  }
  if (error) std::rethrow_exception(error);
  return moved;
}

StorageResult Measure(const NamelessFile& file, bool write, int64_t block, int64_t blocks, int depth, double seconds) {
  if (write) file.Empty();
  std::vector<Block> buffers;  // before the clock runs
  for (int i = 0; i < depth; ++i) buffers.emplace_back(block, 0x9e3779b97f4a7c15u + static_cast<uint64_t>(i));
  const auto begin = Clock::now();
  const int64_t moved = MoveBlocks(file, write, block, blocks, buffers, seconds);
  if (write) file.Sync();
  StorageResult result;
  result.write = write, result.block = block, result.depth = depth;
  result.bytes = moved * block;
  result.seconds = SecondsSince(begin);
  return result;
}

void CheckOptions(const StorageOptions& options) {
  if (options.bytes <= 0) throw UsageError("--size must be positive");
  for (const int64_t block : options.blocks) {
    if (block <= 0 || block % kAlignment != 0)
      throw UsageError("a block of " + FormatBytes(block) + ": not a multiple of " + std::to_string(kAlignment) +
                       " bytes");
    if (block > options.bytes)
      throw UsageError("--size " + FormatBytes(options.bytes) + " is less than a block of " + FormatBytes(block) +
                       "; write a larger one");
  }
  for (const int depth : options.depths)
    if (depth < 1 || depth > 256) throw UsageError("a queue of " + std::to_string(depth) + ": from 1 to 256");
}

}  // namespace

StorageFacts CheckStorage(const StorageOptions& options) {
  CheckOptions(options);
  struct stat info {};
  const std::string folder = options.folder.string();
  if (::stat(folder.c_str(), &info) != 0)
    throw UsageError("--path " + folder + ": " + SystemError("cannot measure there", errno).what());
  if (!S_ISDIR(info.st_mode)) throw UsageError("--path " + folder + ": not a folder");
  struct statvfs disk {};
  if (::statvfs(folder.c_str(), &disk) != 0)
    throw UsageError("--path " + folder + ": " + SystemError("cannot tell its free space", errno).what());
  StorageFacts facts;
  facts.free_bytes = static_cast<int64_t>(disk.f_bavail) * static_cast<int64_t>(disk.f_frsize);
  if (facts.free_bytes / kFreeFactor < options.bytes)
    throw UsageError("--path " + folder + ": " + FormatBytes(facts.free_bytes) +
                     " are free there, and measuring with a "
                     "file of " +
                     FormatBytes(options.bytes) + " wants " + std::to_string(kFreeFactor) +
                     " times its size; write a smaller --size, or another --path");
  facts.direct = NamelessFile(options.folder, options.direct).direct();
  return facts;
}

std::vector<StorageResult> MeasureStorage(const StorageOptions& options, const Budget& budget,
                                          const std::function<void(const StorageResult&)>& done) {
  CheckOptions(options);
  const NamelessFile file(options.folder, options.direct);
  int remaining = 2 * static_cast<int>(options.blocks.size() * options.depths.size());
  std::vector<StorageResult> results;
  for (const int64_t block : options.blocks)
    for (const int depth : options.depths) {
      if (budget.Over()) return results;
      int64_t blocks = options.bytes / block;
      if (depth > blocks) {
        remaining -= 2;
        continue;
      }
      for (const bool write : {true, false}) {
        const StorageResult result = Measure(file, write, block, blocks, depth, budget.Share(remaining--));
        if (write) {
          blocks = result.bytes / block;  // the time may have been over before all were written
          file.DropCache();
        }
        if (result.bytes == 0) continue;
        results.push_back(result);
        done(result);
      }
    }
  return results;
}

}  // namespace ds
