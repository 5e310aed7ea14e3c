// Collectives between the ranks of one machine: what they achieve, and the latency and bandwidth that follow.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/bench/budget.h"
#include "runtime/bench/rank_group.h"
#include "runtime/plan/machine_file.h"

namespace ds {

enum class BenchCollective { all_gather, reduce_scatter, all_reduce, send_receive };
const char* NameOf(BenchCollective operation);

/// Bandwidths as nccl-tests define them (NVIDIA/nccl-tests, doc/PERFORMANCE.md). `bytes` is the size of the whole
/// tensor: what each rank has after an all-gather, before a reduce-scatter, or sends.
struct CollectiveResult {
  BenchCollective operation = BenchCollective::all_gather;
  int ranks = 2;
  int64_t bytes = 0;
  double seconds = 0;  ///< of the slowest rank: the median of the repeats

  /// bytes / seconds.
  double AlgorithmBandwidth() const { return seconds > 0 ? static_cast<double>(bytes) / seconds : 0; }
  /// Algorithm bandwidth times BusFactor: what each rank's link carries, to be held against the hardware's.
  double BusBandwidth() const;
  /// What a rank sends: bytes times BusFactor.
  double SentBytes() const;
};

/// (n - 1) / n of an all-gather or reduce-scatter over n ranks, 2 (n - 1) / n of an all-reduce, 1 of a send.
double BusFactor(BenchCollective operation, int ranks);

struct CollectiveSummary {
  std::vector<CollectiveResult> results;
  /// Device memory of the first communicator of a rank, and of each further one: the most of any rank. 0 on CPUs.
  int64_t first_communicator_bytes = 0, communicator_bytes = 0;
};

/// The largest tensor that memory allows on every rank: at most 1 GiB on GPUs, 64 MiB on CPUs.
int64_t LargestMessage(int ranks, bool gpus);

/// Makes the ranks' communicators, and times each operation over sizes up to `largest` bytes until the budget is over;
/// `done` is told as each ends. Throws RuntimeError when a rank fails. The group is of no further use.
CollectiveSummary MeasureCollectives(RankGroup& group, bool gpus, int64_t largest, const Budget& budget,
                                     const std::function<void(const CollectiveResult&)>& done);

/// The results as a machine file has them: a fit of each operation to what a rank sends. Send-receives are not among
/// them.
std::vector<CollectiveRate> CollectiveRatesOf(const std::vector<CollectiveResult>& results);

}  // namespace ds
