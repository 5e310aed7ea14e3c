#include "runtime/bench/io.h"

#include <fcntl.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/plan/price.h"
#include "runtime/state/file_lane.h"
#include "runtime/state/host_memory.h"

namespace ds {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kFreeFactor = 4;
constexpr int64_t kLeastRequest = 16 << 20;  // two of them are under way, so that the queue does not run dry between
constexpr double kNearBest = 0.95;
const char kRank[] = "ds-bench";

double SecondsSince(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

/// Bytes that compress badly: some disks and file systems compress.
void Fill(const HostMemory& memory) {
  uint64_t* const words = static_cast<uint64_t*>(memory.Bytes(0, memory.bytes()).data);
  uint64_t seed = 0x9e3779b97f4a7c15u;
  for (int64_t i = 0; i < memory.bytes() / 8; ++i) {
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;  // Marsaglia's xorshift
    words[i] = seed;
  }
}

FileTierOptions TierOptions(const IoOptions& options) {
  FileTierOptions tier;
  for (const std::filesystem::path& folder : options.folders) tier.paths.push_back(folder.string());
  tier.block_bytes = options.blocks.front();
  tier.queue_depth = options.depths.front();
  // Every block size finds the same stripes: blocks of the largest are whole.
  tier.stripe_bytes = *std::max_element(options.blocks.begin(), options.blocks.end());
  tier.direct = options.direct;
  tier.backend = options.backend;
  return tier;
}

/// What is moved, in requests that begin before the one before has ended.
struct Span {
  bool write = false;
  int64_t begin = 0, end = 0;
};

/// Moves the span until its end or until the time is over; returns the bytes that were moved.
int64_t Move(FileTier& tier, FileLane& lane, const Span& span, const HostMemory& memory, double seconds) {
  const auto begin = Clock::now();
  std::optional<FileLane::Ticket> before;
  int64_t at = span.begin;
  while (at < span.end && (at == span.begin || SecondsSince(begin) < seconds)) {
    const int64_t bytes = std::min(memory.bytes(), span.end - at);
    void* const data = memory.Bytes(0, bytes).data;
    const FileLane::Ticket started = span.write ? lane.StartWrite(at, data, bytes) : lane.StartRead(at, data, bytes);
    if (before) lane.Wait(*before);
    before = started;
    at += bytes;
  }
  if (before) lane.Wait(*before);
  if (span.write) tier.Sync();
  return at - span.begin;
}

/// What lanes of one block size and depth move from and to, made before a clock runs.
struct Mover {
  Mover(FileTier& tier, int64_t block, int depth, int64_t most)
      : lane(tier, block, depth), memory(std::min(FileTier::RoundUp(most), std::max(kLeastRequest, block * depth))) {
    Fill(memory);
    lane.Register(memory.Bytes(0, memory.bytes()).data, memory.bytes());
  }

  FileLane lane;
  const HostMemory memory;
};

class Measured {
 public:
  Measured(FileTier& tier, int64_t block, int depth)
      : tier_(tier),
        block_(block),
        depth_(depth),
        first_(tier, block, depth, tier.bytes()),
        second_(tier, block, depth, tier.bytes()) {}

  IoResult One(bool write, double seconds) {
    const auto begin = Clock::now();
    const int64_t bytes = Move(tier_, first_.lane, {write, 0, tier_.bytes()}, first_.memory, seconds);
    return {write ? IoDirection::write : IoDirection::read, block_, bytes, depth_, SecondsSince(begin)};
  }

  IoResult Both(double seconds) {
    const int64_t half = tier_.bytes() / 2 / FileTier::kAlignment * FileTier::kAlignment;
    int64_t read = 0, written = 0;
    std::exception_ptr error;
    const auto begin = Clock::now();
    {
      const std::jthread reader([&] {
        try {
          read = Move(tier_, first_.lane, {false, 0, half}, first_.memory, seconds);
        } catch (...) {
          error = std::current_exception();
        }
      });
      written = Move(tier_, second_.lane, {true, half, tier_.bytes()}, second_.memory, seconds);
    }
    if (error) std::rethrow_exception(error);
    return {IoDirection::both, block_, read + written, depth_, SecondsSince(begin)};
  }

 private:
  FileTier& tier_;
  const int64_t block_;
  const int depth_;
  Mover first_, second_;
};

/// Asks the system to forget what it caches: matters where it must cache.
void DropCache(const FileTier& tier) {
  for (const int file : tier.Descriptors()) ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
}

void CheckOptions(const IoOptions& options) {
  if (options.bytes <= 0) throw UsageError("--size must be positive");
  if (options.folders.empty() || options.blocks.empty() || options.depths.empty())
    throw UsageError("a path, a block size and a queue depth are wanted");
  for (const int64_t block : options.blocks) {
    CheckFileBlocks(block, options.depths.front());
    if (block > options.bytes)
      throw UsageError("--size " + FormatBytes(options.bytes) + " is less than a block of " + FormatBytes(block) +
                       "; write a larger one");
  }
  for (const int depth : options.depths) CheckFileBlocks(options.blocks.front(), depth);
}

}  // namespace

const char* NameOf(IoDirection direction) {
  switch (direction) {
    case IoDirection::write:
      return "write and sync";
    case IoDirection::read:
      return "read";
    case IoDirection::both:
      return "read and write";
  }
  return "?";
}

IoFacts CheckIo(const IoOptions& options) {
  CheckOptions(options);
  IoFacts facts;
  facts.direct = options.direct;
  facts.free_bytes = INT64_MAX;
  for (const std::filesystem::path& folder : options.folders) {
    IoOptions alone = options;
    alone.folders = {folder};
    try {
      facts.direct &= FileTier(TierOptions(alone), FileTier::kAlignment, kRank).direct();
    } catch (const RuntimeError& error) {
      throw UsageError("--path " + std::string(error.what()));
    }
    struct statvfs disk {};
    if (::statvfs(folder.c_str(), &disk) != 0)
      throw UsageError("--path " + folder.string() + ": cannot tell its space");
    const int64_t free = static_cast<int64_t>(disk.f_bavail) * static_cast<int64_t>(disk.f_frsize);
    const int64_t share = options.bytes / static_cast<int64_t>(options.folders.size());
    if (free / kFreeFactor < share)
      throw UsageError("--path " + folder.string() + ": " + FormatBytes(free) + " are free there, and measuring with " +
                       FormatBytes(share) + " wants " + std::to_string(kFreeFactor) +
                       " times as much; write a smaller --size, or another --path");
    facts.free_bytes = std::min(facts.free_bytes, free);
  }
  const FileTierOptions tier_options = TierOptions(options);
  const FileTier tier(tier_options, tier_options.stripe_bytes * static_cast<int64_t>(options.folders.size()), kRank);
  facts.folders = tier.DescribeFolders(), facts.backend = tier.DescribeBackend();
  return facts;
}

std::vector<IoResult> MeasureIo(const IoOptions& options, const Budget& budget,
                                const std::function<void(const IoResult&)>& done) {
  CheckOptions(options);
  std::vector<IoResult> results;
  if (budget.Over()) return results;
  FileTier tier(TierOptions(options), options.bytes, kRank);
  int remaining = 3 * static_cast<int>(options.blocks.size() * options.depths.size()) + 1;
  {
    Mover first(tier, options.blocks.back(), options.depths.back(), tier.bytes());
    Move(tier, first.lane, {true, 0, tier.bytes()}, first.memory, budget.Share(remaining--));
  }
  for (const int64_t block : options.blocks)
    for (const int depth : options.depths) {
      if (budget.Over()) return results;
      Measured measured(tier, block, depth);
      for (const IoDirection direction : {IoDirection::write, IoDirection::read, IoDirection::both}) {
        if (!options.direct) DropCache(tier);
        const double seconds = budget.Share(remaining--);
        if (seconds <= 0) return results;
        const IoResult result = direction == IoDirection::both ? measured.Both(seconds)
                                                               : measured.One(direction == IoDirection::write, seconds);
        results.push_back(result);
        done(result);
      }
    }
  return results;
}

IoChoice ChooseIo(const std::vector<IoResult>& results) {
  std::map<std::pair<int64_t, int>, IoChoice> choices;
  for (const IoResult& result : results) {
    IoChoice& choice = choices[{result.block, result.depth}];
    choice.block = result.block, choice.depth = result.depth;
    (result.direction == IoDirection::write  ? choice.write
     : result.direction == IoDirection::read ? choice.read
                                             : choice.mixed) = result.Rate();
  }
  std::erase_if(choices, [](const auto& item) { return item.second.write <= 0 || item.second.read <= 0; });
  const bool mixed =
      std::any_of(choices.begin(), choices.end(), [](const auto& item) { return item.second.mixed > 0; });
  const auto rate = [mixed](const IoChoice& choice) {
    return mixed ? choice.mixed : 2 / (1 / choice.read + 1 / choice.write);
  };
  double best = 0;
  for (const auto& item : choices) best = std::max(best, rate(item.second));
  IoChoice chosen;
  for (const auto& [key, choice] : choices)
    if (rate(choice) >= kNearBest * best &&
        (chosen.block == 0 || choice.block * choice.depth < chosen.block * chosen.depth))
      chosen = choice;
  return chosen;
}

}  // namespace ds
