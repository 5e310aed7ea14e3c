// The file tier of ZeRO-Infinity (Rajbhandari et al., 2021): a rank's space on disks, beside its device and host
// memory.
//
// A FileTier is so many bytes, striped round robin over folders, in files that no folder lists: nothing is left of them
// however the process ends. A FileLane (file_lane.h) reads and writes them.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/state/io_queue.h"
#include "runtime/state/nameless_file.h"

namespace ds {

struct FileTierOptions {
  std::vector<std::string> paths;          ///< folders, one or more; of different disks to be faster (nvme_path)
  int64_t block_bytes = int64_t{1} << 20;  ///< of one read or write; 4 KiB to 1 GiB (aio.block_size)
  int queue_depth = 8;                     ///< blocks of a lane that are under way at once; 1 to 1024 (aio.queue_depth)
  int64_t stripe_bytes = 0;                ///< 0: a block, and at least 1 MiB
  bool direct = true;                      ///< O_DIRECT where a file system has it; false: through the page cache
  IoBackend backend = IoBackend::any;      ///< any: io_uring where it is permitted, else threads
};

/// Throws UsageError where a tier cannot have such blocks, or so many of them at once.
void CheckFileBlocks(int64_t block_bytes, int queue_depth);

class FileTier {
 public:
  /// What an allocation begins at, and is rounded up to: a multiple of every disk's sector.
  static constexpr int64_t kAlignment = kDirectAlignment;

  /// Takes `bytes` bytes of the folders' disks at once, so that no later write finds them full. `rank_name` says in
  /// errors whose they are: "rank 3". Relative paths are of the working directory. Throws UsageError about options that
  /// make no sense, and RuntimeError with folder, operation, reason and what to do: a folder that is not there, is none
  /// or not writable; a disk that is too small, with bytes wanted and free; a backend that was asked for and is
  /// refused.
  FileTier(FileTierOptions options, int64_t bytes, std::string rank_name);
  FileTier(const FileTier&) = delete;
  FileTier& operator=(const FileTier&) = delete;

  int64_t bytes() const { return bytes_; }

  /// The offset of `bytes` bytes that no other allocation shares a sector with. They are never given back; a tier of
  /// the sum of RoundUp of all has room for all. Thread-safe. Throws RuntimeError when they do not fit.
  int64_t Allocate(int64_t bytes);
  static constexpr int64_t RoundUp(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

  /// Offsets and lengths that are multiples of Alignment(), in memory at a multiple of MemoryAlignment(), go between
  /// memory and disk directly; others are copied on the way, and a write that begins or ends inside a sector reads the
  /// sector first. 1: anything goes, through the page cache.
  int64_t Alignment() const { return direct_ ? kAlignment : 1; }
  int64_t MemoryAlignment() const { return memory_alignment_; }

  /// "2.0 GiB in /a (O_DIRECT) and /b (page cache: memory, not a disk (tmpfs)), stripes of 1.0 MiB; blocks of 1.0 MiB,
  /// 8 at once, by threads (io_uring: not permitted ...)": where it is, how it is moved, and why not better.
  std::string Describe() const;
  std::string DescribeFolders() const;            ///< "/a (O_DIRECT) and /b (page cache: ...)"
  std::string DescribeBackend() const;            ///< "io_uring", "threads (io_uring: ...)"
  IoBackend backend() const { return backend_; }  ///< never `any`
  bool direct() const { return direct_; }         ///< O_DIRECT works in at least one of the folders
  bool Direct(int file) const { return files_[static_cast<size_t>(file)].direct(); }
  const FileTierOptions& options() const { return options_; }
  const std::string& rank_name() const { return rank_name_; }

  /// Waits until everything that lanes have written is on the disks. Training has no need of it. Throws RuntimeError.
  void Sync() const;

  /// A range of the tier as one of a file: what lanes move.
  struct Place {
    int file = 0;
    int64_t offset = 0;  ///< in the file
    int64_t bytes = 0;   ///< of what was asked, until the stripe's end
  };
  /// Where the first of `bytes` bytes at `offset` are. They are inside.
  Place PlaceOf(int64_t offset, int64_t bytes) const;
  std::vector<int> Descriptors() const;
  const std::string& FolderOf(int file) const { return files_[static_cast<size_t>(file)].folder(); }
  /// Held while a sector is read, changed in part and written back: writers of its other bytes wait.
  std::mutex& sector_mutex() { return sector_mutex_; }

 private:
  FileTierOptions options_;
  const int64_t bytes_;
  const std::string rank_name_;
  std::vector<NamelessFile> files_;
  bool direct_ = false;
  int64_t memory_alignment_ = 1;
  IoBackend backend_ = IoBackend::threads;
  std::string why_no_io_uring_;
  std::mutex allocate_mutex_, sector_mutex_;
  int64_t allocated_ = 0;
};

}  // namespace ds
