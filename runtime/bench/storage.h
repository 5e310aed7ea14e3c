// Sequential reading and writing of a file, past the page cache where the file system allows that.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "runtime/bench/budget.h"

namespace ds {

struct StorageOptions {
  std::filesystem::path folder = ".";                                     ///< where the file is made
  int64_t bytes = int64_t{1} << 30;                                       ///< of the file, at most
  std::vector<int64_t> blocks = {256 << 10, 1 << 20, 4 << 20, 16 << 20};  ///< of a read or write; multiples of 4096
  bool direct = true;                    ///< false: through the page cache, as checkpoints are written
  std::vector<int> depths = {1, 4, 16};  ///< reads or writes that are under way at once, a thread each
};

struct StorageResult {
  bool write = false;
  int64_t block = 0, bytes = 0;  ///< `bytes`: that were moved
  int depth = 0;
  double seconds = 0;  ///< of a write: fsync included
  double Rate() const { return seconds > 0 ? static_cast<double>(bytes) / seconds : 0; }
};

struct StorageFacts {
  int64_t free_bytes = 0;  ///< of the file system, for this user
  bool direct = false;     ///< O_DIRECT is wanted and works; otherwise data goes through the page cache
};

/// Looks at the folder, and measures nothing. Throws UsageError where it is no folder that a file can be made in, where
/// the options make no sense, and where less than four times `bytes` are free there.
StorageFacts CheckStorage(const StorageOptions& options);

/// Each block size with each depth that the file has blocks for, written and then read; `done` is told as each ends.
/// The file has no name, or loses it before the first byte: nothing is left of it however this process ends. Each
/// measurement gets an equal share of the budget and ends at the end of a block; what finds no time left is not
/// measured. Throws SystemError of a write, read or sync.
std::vector<StorageResult> MeasureStorage(const StorageOptions& options, const Budget& budget,
                                          const std::function<void(const StorageResult&)>& done);

}  // namespace ds
