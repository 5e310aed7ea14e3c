// How fast a disk reads, writes, and does both at once through the file tier (runtime/state/file_tier.h), by the size
// of blocks and the depth of the queue; and which of them to take.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "runtime/bench/budget.h"
#include "runtime/state/io_queue.h"

namespace ds {

struct IoOptions {
  std::vector<std::filesystem::path> folders = {"."};           ///< the space is striped over all of them
  int64_t bytes = int64_t{1} << 30;                             ///< of the space, in all
  std::vector<int64_t> blocks = {256 << 10, 1 << 20, 4 << 20};  ///< of a read or write; multiples of 4096
  std::vector<int> depths = {1, 4, 16, 32};                     ///< blocks that are under way at once
  bool direct = true;  ///< false: through the page cache, as checkpoints are written
  IoBackend backend = IoBackend::any;
};

enum class IoDirection : uint8_t { write, read, both };
const char* NameOf(IoDirection direction);  ///< "write and sync", "read", "read and write"

struct IoResult {
  IoDirection direction = IoDirection::read;
  int64_t block = 0, bytes = 0;  ///< `bytes`: that were moved; of both at once, the sum
  int depth = 0;                 ///< of both at once, each way
  double seconds = 0;            ///< with the sync behind what was written
  double Rate() const { return seconds > 0 ? static_cast<double>(bytes) / seconds : 0; }
};

struct IoFacts {
  int64_t free_bytes = 0;        ///< of the file systems, for this user; of the one that has least
  bool direct = false;           ///< O_DIRECT is wanted and works in all folders
  std::string folders, backend;  ///< FileTier::DescribeFolders and DescribeBackend
};

/// Looks at the folders, and measures nothing. Throws UsageError where a tier cannot be made in one, where the options
/// make no sense, and where less than four times its share of `bytes` is free in a folder.
IoFacts CheckIo(const IoOptions& options);

/// Each block size with each depth: the whole space is written, then read, then its first half read while the second
/// is written. `done` is told as each ends. All of it is written once before, so that no measurement pays for blocks
/// that the disk has not touched yet. Nothing is left however this process ends. Each measurement gets an equal share
/// of the budget and ends with a request of a few blocks; what finds no time left is not measured. Throws RuntimeError.
std::vector<IoResult> MeasureIo(const IoOptions& options, const Budget& budget,
                                const std::function<void(const IoResult&)>& done);

/// Blocks and depth to take, and what they achieve.
struct IoChoice {
  int64_t block = 0;
  int depth = 0;
  double write = 0, read = 0, mixed = 0;  ///< bytes a second; 0: not measured
};

/// Of all blocks and depths that reach 95% of the best rate of both at once, those that take the least memory, block
/// times depth. Where that was not measured, of reading and writing one after the other. All zero where either was not.
IoChoice ChooseIo(const std::vector<IoResult>& results);

}  // namespace ds
