#include "runtime/bench/storage.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>

#include "runtime/base/error.h"
#include "runtime/base/number.h"
#include "runtime/plan/price.h"
#include "runtime/tools/bench.h"
#include "runtime/tools/command_line.h"

namespace ds {

void AddStorageOptions(CLI::App& command, BenchOptions& options) {
  command.add_option("--path", options.path, "The folder that the file for storage is made in")->capture_default_str();
  command
      .add_option("--size", options.size,
                  "Of that file, as in 256MiB, at most; four times as much must be free. More than a disk's cache says "
                  "more of the disk")
      ->capture_default_str();
  command.add_flag("--page-cache", options.page_cache,
                   "Through the system's page cache, as checkpoints are written, instead of with O_DIRECT");
}

StorageOptions StorageOf(const BenchOptions& options) {
  StorageOptions storage;
  storage.folder = options.path;
  storage.direct = !options.page_cache;
  storage.bytes = AsBytes(FlagValue(options.size, "--size"));
  // Small files are moved in those blocks that fit.
  std::erase_if(storage.blocks, [&](int64_t block) { return block > storage.bytes; });
  if (storage.blocks.empty()) throw UsageError("--size " + options.size + ": write at least 256KiB");
  return storage;
}

void BenchStorage(BenchRun& run, const StorageOptions& storage, const Budget& budget) {
  BenchTable& table = run.table();
  const StorageFacts facts = CheckStorage(storage);
  std::error_code error;
  std::filesystem::path path = std::filesystem::canonical(storage.folder, error);
  if (error) path = storage.folder;
  table.Section("storage: " + path.string() + ", " + FormatBytes(facts.free_bytes) + " free, a file of " +
                FormatBytes(storage.bytes));
  if (!facts.direct)
    table.Say(std::string(storage.direct ? "  O_DIRECT does not work there: reads" : "  reads") +
              " and writes go through the page cache, and what is read may come from it");
  DiskRate disk{path.string(), 0, 0, facts.direct};
  MeasureStorage(storage, budget, [&](const StorageResult& result) {
    table.Add({result.write ? "write and fsync" : "read",
               "blocks of " + FormatBytes(result.block) + ", queue " + std::to_string(result.depth), result.Rate(), 0,
               RateUnit::bytes, FormatBytes(result.bytes)});
    double& best = result.write ? disk.write_bytes_per_second : disk.read_bytes_per_second;
    best = std::max(best, result.Rate());
    table.Progress("storage");
  });
  if (disk.write_bytes_per_second <= 0 || disk.read_bytes_per_second <= 0)
    throw RuntimeError("no time was left to write and read anything; --seconds gives more");
  std::vector<DiskRate>& disks = run.file().disks;
  std::erase_if(disks, [&](const DiskRate& old) { return old.path == disk.path; });
  disks.push_back(disk);
}

}  // namespace ds
