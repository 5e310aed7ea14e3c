#include <CLI/CLI.hpp>
#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/bench/collectives.h"
#include "runtime/plan/price.h"
#include "runtime/tools/bench.h"

namespace ds {
namespace {

/// Puts each rate in the place of that of the same collective over as many ranks.
void Keep(std::vector<CollectiveRate>& known, std::vector<CollectiveRate> measured) {
  for (CollectiveRate& rate : measured) {
    std::erase_if(known, [&](const CollectiveRate& old) { return old.kind == rate.kind && old.ranks == rate.ranks; });
    known.push_back(std::move(rate));
  }
}

}  // namespace

int CollectiveRanks(const BenchRun& run) {
  const int ranks = run.options().ranks;
  if (ranks < 0 || ranks == 1 || ranks > 256) throw UsageError("--ranks must be from 2 to 256, or 0");
  if (run.on_gpu() && ranks > run.gpus())
    throw UsageError("--ranks " + std::to_string(ranks) + ": this machine has " + std::to_string(run.gpus()) +
                     " GPUs, one a rank; write --device cpu for ranks on the CPU");
  return ranks > 0 ? ranks : run.on_gpu() ? run.gpus() : 2;
}

void AddCollectiveOptions(CLI::App& command, BenchOptions& options) {
  command.add_option("--ranks", options.ranks, "So many ranks; 0: one a GPU, without GPUs 2")->capture_default_str();
}

void BenchCollectives(BenchRun& run, const Budget& budget) {
  BenchTable& table = run.table();
  const int ranks = CollectiveRanks(run);
  if (ranks < 2) {
    table.Say("\ncollectives: not measured: there is 1 GPU; --device cpu measures them between processes on the CPU");
    return;
  }
  run.CloseGpu();  // its memory is the ranks'
  table.Section("collectives: " + std::to_string(ranks) + " ranks, over " +
                (run.on_gpu() ? "NCCL" : "Gloo (TCP, loopback)"));
  table.Progress("connecting");
  RankGroup::Options options;
  options.size = ranks, options.gpus = run.on_gpu();
  options.threads = std::max(1, run.threads() / ranks);
  RankGroup group(options);
  const double limit = run.on_gpu() ? run.Peaks().link_bytes : 0;
  const CollectiveSummary summary = MeasureCollectives(
      group, run.on_gpu(), LargestMessage(ranks, run.on_gpu()), budget, [&](const CollectiveResult& result) {
        table.Add({NameOf(result.operation), FormatBytes(result.bytes) + ", " + std::to_string(ranks) + " ranks",
                   result.BusBandwidth(), limit, RateUnit::bytes,
                   RateText(result.seconds, RateUnit::seconds) + ", algorithm " +
                       RateText(result.AlgorithmBandwidth(), RateUnit::bytes)});
        table.Progress("collectives");
      });
  group.Finish();
  std::vector<CollectiveRate> rates = CollectiveRatesOf(summary.results);
  for (const CollectiveRate& rate : rates)
    table.Say(std::string("  ") + NameOf(rate.kind) + ": fitted " +
              RateText(rate.rate.latency_seconds, RateUnit::seconds) + " and " +
              RateText(rate.rate.bytes_per_second, RateUnit::bytes) + " sent by a rank");
  if (rates.empty()) throw RuntimeError("no time was left to measure anything; --seconds gives more");
  Keep(run.file().collectives, std::move(rates));
  if (!run.on_gpu()) return;
  if (summary.first_communicator_bytes <= 0 || summary.communicator_bytes <= 0)
    return table.Say(
        "  communicators: what they take was not measured: the GPUs' use did not grow, others use them too");
  run.file().libraries.first_communicator_bytes = summary.first_communicator_bytes;
  run.file().libraries.communicator_bytes = summary.communicator_bytes;
  table.Say("  the first communicator takes " + FormatBytes(summary.first_communicator_bytes) +
            " of each GPU's memory, a further one " + FormatBytes(summary.communicator_bytes));
}

}  // namespace ds
