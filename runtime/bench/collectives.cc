#include "runtime/bench/collectives.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <optional>

#include "runtime/base/error.h"
#include "runtime/bench/fit.h"
#include "runtime/bench/timer.h"
#include "runtime/train/peak_memory.h"

namespace ds {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr BenchCollective kOperations[] = {BenchCollective::all_gather, BenchCollective::reduce_scatter,
                                           BenchCollective::all_reduce, BenchCollective::send_receive};
/// Of the whole tensor.
constexpr int64_t kSizes[] = {int64_t{4} << 10,  int64_t{64} << 10,  int64_t{1} << 20, int64_t{16} << 20,
                              int64_t{64} << 20, int64_t{256} << 20, int64_t{1} << 30};

constexpr milliseconds kConnect{90'000};
constexpr milliseconds kAnswer{60'000};  ///< one batch of calls, beyond what it should take
constexpr double kBatch = 2e-3;          ///< shortest batch: beside it, the barrier's end on different ranks is small
constexpr int kMostCalls = 20, kMostBatches = 25, kBatches = 3;

template <class T>
T Number(const std::string& text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) throw RuntimeError("a rank answered '" + text + "'");
  return value;
}

/// The time of one call, of the slowest rank, in a batch of `times`.
double Batch(RankGroup& group, BenchCollective operation, int64_t bytes, int times) {
  double slowest = 0;
  for (const RankMessage& answer :
       group.Ask({"time", NameOf(operation), std::to_string(bytes), std::to_string(times)}, kAnswer))
    slowest = std::max(slowest, Number<double>(answer.at(0)));
  return std::max(slowest, 1e-9);
}

double Measure(RankGroup& group, BenchCollective operation, int64_t bytes, double seconds) {
  Batch(group, operation, bytes, 1);  // memory is touched, connections are made
  const auto begin = Clock::now();
  const auto passed = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  const double once = Batch(group, operation, bytes, 1);
  const int times = static_cast<int>(std::clamp(kBatch / once, 1.0, static_cast<double>(kMostCalls)));
  std::vector<double> samples;
  if (times == 1) samples.push_back(once);
  while (samples.empty() || (static_cast<int>(samples.size()) < kMostBatches && passed() < seconds) ||
         (static_cast<int>(samples.size()) < kBatches && passed() < 2 * seconds))
    samples.push_back(Batch(group, operation, bytes, times));
  return Median(samples);
}

/// Device memory that the ranks' next communicator takes: the most of any.
int64_t Connect(RankGroup& group, const char* stream) {
  int64_t most = 0;
  for (const RankMessage& answer : group.Ask({"connect", stream}, kConnect))
    most = std::max(most, Number<int64_t>(answer.at(1)) - Number<int64_t>(answer.at(0)));
  return most;
}

std::optional<CollectiveKind> KindOf(BenchCollective operation) {
  switch (operation) {
    case BenchCollective::all_gather:
      return CollectiveKind::all_gather;
    case BenchCollective::reduce_scatter:
      return CollectiveKind::reduce_scatter;
    case BenchCollective::all_reduce:
      return CollectiveKind::all_reduce;
    case BenchCollective::send_receive:
      break;
  }
  return std::nullopt;
}

}  // namespace

const char* NameOf(BenchCollective operation) {
  switch (operation) {
    case BenchCollective::all_gather:
      return "all_gather";
    case BenchCollective::reduce_scatter:
      return "reduce_scatter";
    case BenchCollective::all_reduce:
      return "all_reduce";
    case BenchCollective::send_receive:
      return "send_receive";
  }
  return "?";
}

double BusFactor(BenchCollective operation, int ranks) {
  const double n = ranks;
  switch (operation) {
    case BenchCollective::all_gather:
    case BenchCollective::reduce_scatter:
      return (n - 1) / n;
    case BenchCollective::all_reduce:
      return 2 * (n - 1) / n;
    case BenchCollective::send_receive:
      break;
  }
  return 1;
}

double CollectiveResult::BusBandwidth() const { return AlgorithmBandwidth() * BusFactor(operation, ranks); }
double CollectiveResult::SentBytes() const { return static_cast<double>(bytes) * BusFactor(operation, ranks); }

int64_t LargestMessage(int ranks, bool gpus) {
  if (gpus) return int64_t{1} << 30;
  const int64_t free = AvailableMemory(), most = int64_t{64} << 20;
  // Each rank holds the tensor, a reduction's workspace of the same size, and a shard; half of the memory is left.
  return free > 0 ? std::min(most, free / 2 / (3 * ranks)) : most;
}

CollectiveSummary MeasureCollectives(RankGroup& group, bool gpus, int64_t largest, const Budget& budget,
                                     const std::function<void(const CollectiveResult&)>& done) {
  CollectiveSummary summary;
  // As many as a rank of a job has: one a stream of the plan.
  summary.first_communicator_bytes = Connect(group, "compute");
  if (gpus) summary.communicator_bytes = (Connect(group, "gather") + Connect(group, "reduce")) / 2;
  const int ranks = group.size();
  const int64_t unit = 4 * ranks;  // an fp32 a rank
  int remaining = 0;
  for (const int64_t size : kSizes) remaining += size <= largest ? 1 : 0;
  remaining *= static_cast<int>(std::size(kOperations));
  // Sizes in the outer loop: when the time is over, every operation has as many.
  double rate = 0;  // of the last size: what the next, larger one will take at most
  for (const int64_t size : kSizes) {
    const int64_t bytes = std::max(size / unit, int64_t{1}) * unit;
    if (bytes > largest && size != kSizes[0]) break;
    double slowest = 0;
    for (const BenchCollective operation : kOperations) {
      const double share = budget.Share(remaining--);
      if (budget.Over() || (rate > 0 && 3 * static_cast<double>(bytes) / rate > budget.Left())) continue;
      CollectiveResult result{operation, ranks, bytes, Measure(group, operation, bytes, share)};
      slowest = std::max(slowest, result.seconds);
      summary.results.push_back(result);
      done(result);
    }
    if (slowest > 0) rate = static_cast<double>(bytes) / slowest;
  }
  return summary;
}

std::vector<CollectiveRate> CollectiveRatesOf(const std::vector<CollectiveResult>& results) {
  std::vector<CollectiveRate> rates;
  for (const BenchCollective operation : kOperations) {
    const std::optional<CollectiveKind> kind = KindOf(operation);
    if (!kind) continue;
    CollectiveRate rate;
    rate.kind = *kind;
    std::vector<std::pair<double, double>> sent;
    for (const CollectiveResult& result : results) {
      if (result.operation != operation) continue;
      rate.ranks = result.ranks;
      rate.points.emplace_back(result.bytes, result.seconds);
      sent.emplace_back(result.SentBytes(), result.seconds);
    }
    if (sent.empty()) continue;
    rate.rate = FitLinkRate(sent);
    rates.push_back(std::move(rate));
  }
  return rates;
}

}  // namespace ds
