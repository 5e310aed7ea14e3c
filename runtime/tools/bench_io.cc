#include "runtime/bench/io.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>

#include "runtime/base/error.h"
#include "runtime/base/number.h"
#include "runtime/plan/price.h"
#include "runtime/tools/bench.h"
#include "runtime/tools/command_line.h"

namespace ds {
namespace {

namespace fs = std::filesystem;

fs::path Canonical(const fs::path& folder) {
  std::error_code error;
  const fs::path path = fs::canonical(folder, error);
  return error ? folder : path;
}

std::string ShapeText(int64_t block, int depth) {
  return "blocks of " + FormatBytes(block) + ", queue " + std::to_string(depth);
}

/// One folder, or several as one space; what to take, all zero where no time was left.
IoChoice MeasureFolders(BenchRun& run, const IoOptions& io, const Budget& budget) {
  BenchTable& table = run.table();
  const IoFacts facts = CheckIo(io);
  table.Section("io: " + FormatBytes(io.bytes) + " in " + facts.folders + ", " + FormatBytes(facts.free_bytes) +
                " free, by " + facts.backend);
  if (!facts.direct)
    table.Say(std::string(io.direct ? "  O_DIRECT does not work there: reads" : "  reads") +
              " and writes go through the page cache, and what is read may come from it");
  const std::vector<IoResult> results = MeasureIo(io, budget, [&](const IoResult& result) {
    table.Add({NameOf(result.direction), ShapeText(result.block, result.depth), result.Rate(), 0, RateUnit::bytes,
               FormatBytes(result.bytes)});
    table.Progress("io");
  });
  const IoChoice choice = ChooseIo(results);
  if (choice.block > 0)
    table.Say("  to take: " + ShapeText(choice.block, choice.depth) +
              " (the least memory that reaches 95% of the best)");
  return choice;
}

}  // namespace

void AddIoOptions(CLI::App& command, BenchOptions& options) {
  command
      .add_option("--path", options.paths,
                  "A folder whose disk is measured; several (--path A --path B) also as one space, striped")
      ->allow_extra_args(false)
      ->capture_default_str();
  command
      .add_option("--size", options.size,
                  "Of the space that is used, as in 256MiB; four times as much must be free. More than a disk's cache "
                  "says more of the disk")
      ->capture_default_str();
  command.add_option("--block", options.blocks, "A size of blocks to try, as in 1MiB; may be repeated")
      ->allow_extra_args(false);
  command.add_option("--queue", options.depths, "A number of blocks under way at once to try; may be repeated")
      ->allow_extra_args(false);
  command
      .add_option("--backend", options.backend,
                  "What reads and writes: any (io_uring where it is permitted, else threads), io_uring or threads")
      ->check(CLI::IsMember({"any", "io_uring", "threads"}))
      ->capture_default_str();
  command.add_flag("--page-cache", options.page_cache,
                   "Through the system's page cache, as checkpoints are written, instead of with O_DIRECT");
}

IoOptions IoOf(const BenchOptions& options) {
  IoOptions io;
  io.folders.assign(options.paths.begin(), options.paths.end());
  for (size_t i = 0; i < io.folders.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (Canonical(io.folders[i]) == Canonical(io.folders[j]))
        throw UsageError("--path " + options.paths[i] + ": named twice; name it once");
  io.direct = !options.page_cache;
  io.bytes = AsBytes(FlagValue(options.size, "--size"));
  for (const IoBackend backend : {IoBackend::any, IoBackend::io_uring, IoBackend::threads})
    if (options.backend == NameOf(backend)) io.backend = backend;
  if (!options.depths.empty()) io.depths = options.depths;
  if (!options.blocks.empty()) {
    io.blocks.clear();
    for (const std::string& block : options.blocks) io.blocks.push_back(AsBytes(FlagValue(block, "--block")));
    return io;
  }
  // A small space is moved in those blocks that fit.
  std::erase_if(io.blocks, [&](int64_t block) { return block > io.bytes; });
  if (io.blocks.empty()) throw UsageError("--size " + options.size + ": write at least 256KiB");
  return io;
}

void BenchIo(BenchRun& run, const IoOptions& io, const Budget& budget) {
  int remaining = static_cast<int>(io.folders.size()) + (io.folders.size() > 1 ? 1 : 0);
  for (const fs::path& folder : io.folders) {
    IoOptions alone = io;
    alone.folders = {folder};
    const IoChoice choice = MeasureFolders(run, alone, budget.Part(budget.Share(remaining--)));
    if (choice.block == 0) throw RuntimeError("no time was left to write and read anything; --seconds gives more");
    DiskRate disk;
    disk.path = Canonical(folder).string();
    disk.write_bytes_per_second = choice.write, disk.read_bytes_per_second = choice.read;
    disk.direct_io = CheckIo(alone).direct;
    disk.mixed_bytes_per_second = choice.mixed;
    disk.block_bytes = choice.block, disk.queue_depth = choice.depth;
    std::vector<DiskRate>& disks = run.file().disks;
    std::erase_if(disks, [&](const DiskRate& old) { return old.path == disk.path; });
    disks.push_back(disk);
  }
  if (io.folders.size() > 1) MeasureFolders(run, io, budget);
}

}  // namespace ds
