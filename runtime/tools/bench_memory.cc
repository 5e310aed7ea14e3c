#include <cstdio>
#include <cstdlib>

#include "runtime/base/error.h"
#include "runtime/bench/memory.h"
#include "runtime/bench/rank_group.h"
#include "runtime/plan/price.h"
#include "runtime/tools/bench.h"

namespace ds {
namespace {

/// In a process of its own, which has not touched the GPU; before this one does. A GPU whose use the driver does not
/// tell is told, and no failure of the rest.
void MeasureLibraries(BenchRun& run) {
  run.table().Progress("memory of the GPU's libraries");
  try {
    RankGroup::Options options;
    options.gpus = true, options.threads = run.threads();
    options.first_gpu = run.options().gpu;
    RankGroup process(options);
    const RankMessage answer = process.Ask({"libraries"}, std::chrono::minutes(3)).at(0);
    process.Finish();
    int64_t sum = 0;
    for (size_t i = 0; i + 1 < answer.size(); i += 2) {
      const int64_t bytes = std::atoll(answer[i + 1].c_str());
      run.table().Say("  " + answer[i] + " takes " + FormatBytes(std::max<int64_t>(bytes, 0)));
      sum += bytes;
    }
    if (sum <= 0) throw RuntimeError("the GPU's use did not grow: others use it too");
    run.file().libraries.library_bytes = sum;
    const int64_t before = std::atoll(answer.back().c_str());
    run.table().Say("  all libraries take " + FormatBytes(sum) + " of the GPU's memory" +
                    (before > (64 << 20) ? "; " + FormatBytes(before) + " were in use by others" : ""));
  } catch (const std::exception& error) {
    run.table().Say(std::string("  libraries: not measured: ") + error.what());
  }
}

void MeasureLink(BenchRun& run, BenchDevice& device, bool to_device, double seconds) {
  const char* const name = to_device ? "host to device" : "device to host";
  run.table().Progress(name);
  const HostLink link = MeasureHostLink(device, to_device, seconds);
  (to_device ? run.file().host_to_device : run.file().device_to_host) = link.rate;
  run.table().Add({name, std::to_string(link.largest >> 20) + " MiB, page-locked", link.large_copy, 0, RateUnit::bytes,
                   "fitted: " + RateText(link.rate.latency_seconds, RateUnit::seconds) + " and " +
                       RateText(link.rate.bytes_per_second, RateUnit::bytes)});
}

}  // namespace

void BenchMemory(BenchRun& run, const Budget& budget) {
  const double each = budget.Left() / 4;
  BenchTable& table = run.table();
  table.Section("memory: " + std::string(run.on_gpu() ? "" : std::to_string(run.threads()) + " threads of ") +
                run.file().device.name);
  if (run.on_gpu()) MeasureLibraries(run);
  BenchDevice device(run.OpenedGpu(), run.threads(), 0);
  table.Progress("memory copy");
  const CopyRate copy = MeasureCopy(device, each);
  run.file().memory_bytes_per_second = copy.bytes_per_second;
  BenchLine line{"memory copy",         std::to_string(copy.bytes >> 20) + " MiB",
                 copy.bytes_per_second, 0,
                 RateUnit::bytes,       "read and written"};
  if (run.on_gpu()) line.limit = run.Peaks().memory_bytes;
  if (copy.bytes_per_second <= 0) line.note = "left out: no memory to measure with";
  table.Add(line);
  if (!run.on_gpu()) return;
  MeasureLink(run, device, true, each);
  MeasureLink(run, device, false, each);
}

}  // namespace ds
