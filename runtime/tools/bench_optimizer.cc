#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <sstream>

#include "kernels/optimizer.h"
#include "runtime/base/error.h"
#include "runtime/base/json.h"
#include "runtime/base/number.h"
#include "runtime/bench/host_optimizer.h"
#include "runtime/plan/price.h"
#include "runtime/tools/bench.h"
#include "runtime/tools/command_line.h"
#include "runtime/train/peak_memory.h"

namespace ds {
namespace {

int64_t ParametersOf(const std::string& size) {
  const int64_t bytes = AsBytes(FlagValue(size, "--state"));
  if (bytes < 1024 || bytes > int64_t{1} << 44) throw UsageError("--state " + size + ": write from 1KiB to 16TiB");
  return bytes / HostOptimizer::kStateBytes;
}

double Rate(const HostOptimizerCase& c, int64_t parameters, double seconds) {
  return static_cast<double>(c.BytesPerParameter() * parameters) / seconds;
}

}  // namespace

void AddOptimizerOptions(CLI::App& command, BenchOptions& options) {
  command
      .add_option("--state", options.sizes,
                  "Sizes of master, moments and an fp32 gradient, 16 bytes a parameter: \"1MiB 1GiB\". What exceeds a "
                  "third of the free memory is left out")
      ->capture_default_str();
}

std::vector<int64_t> OptimizerSizes(const BenchOptions& options) {
  std::vector<int64_t> counts;
  for (const std::string& size : options.sizes) counts.push_back(ParametersOf(size));
  return counts;
}

void BenchOptimizer(BenchRun& run, const Budget& budget) {
  BenchTable& table = run.table();
  const std::vector<std::string>& sizes = run.options().sizes;
  const std::vector<int64_t> counts = OptimizerSizes(run.options());
  table.Section("optimizer: AdamW on the host, " + std::to_string(run.threads()) + " threads");
  if (budget.Over()) throw RuntimeError("no time was left to measure anything; --seconds gives more");
  for (size_t i = 0; i < sizes.size(); ++i) {
    table.Progress("optimizer, " + sizes[i]);
    const int64_t wanted = counts[i] * 20, free = AvailableMemory();
    const std::string shape = sizes[i] + " of state";
    if (free > 0 && wanted > free / 3) {
      table.Add({"adamw", shape, 0, 0, RateUnit::bytes, "left out: " + FormatBytes(free) + " of memory are free"});
      continue;
    }
    HostOptimizer optimizer(counts[i], run.threads());
    const std::vector<HostOptimizerTiming> timings =
        TimeHostOptimizer(optimizer, budget.Share(static_cast<int>(sizes.size() - i)));
    for (size_t c = 0; c < timings.size(); ++c) {
      const HostOptimizerCase& what = HostOptimizerCases()[c];
      const auto [least, most] = std::minmax_element(timings[c].step.begin(), timings[c].step.end());
      const double rate = Rate(what, counts[i], Median(timings[c].step));
      table.Add({"adamw, " + what.what, shape, rate, Rate(what, counts[i], Median(timings[c].stream)), RateUnit::bytes,
                 RateText(Rate(what, counts[i], *most), RateUnit::bytes) + " to " +
                     RateText(Rate(what, counts[i], *least), RateUnit::bytes) + " in " +
                     std::to_string(timings[c].step.size()) + " rounds"});
      if (c + 1 == timings.size() && StepExceedsCaches(what.BytesPerParameter() / 2 * counts[i]))
        run.file().host_optimizer = {run.threads(), rate};
    }
  }
}

void TakeTurns(const BenchOptions& options) {
  if (options.threads < 1 || options.threads > 4096) throw UsageError("--turns wants --threads, from 1 to 4096");
  HostOptimizer optimizer(ParametersOf(options.sizes.at(0)), options.threads);
  const std::vector<HostOptimizerCase>& cases = HostOptimizerCases();
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string name, side;
    int runs = 0;
    words >> name >> side >> runs;
    const auto found =
        std::find_if(cases.begin(), cases.end(), [&](const HostOptimizerCase& c) { return c.name == name; });
    if (found == cases.end() || (side != "step" && side != "stream") || runs < 1)
      throw UsageError("--turns: \"" + line + "\" is no turn: write \"CASE step|stream RUNS\"");
    std::printf("%s\n", JsonNumber(optimizer.Time(*found, side == "stream", runs)).c_str());
    std::fflush(stdout);
  }
}

}  // namespace ds
