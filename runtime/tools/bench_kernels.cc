#include <CLI/CLI.hpp>

#include "runtime/base/error.h"
#include "runtime/bench/kernels.h"
#include "runtime/bench/memory.h"
#include "runtime/job/job_spec.h"
#include "runtime/tools/bench.h"

namespace ds {
namespace {

std::vector<Override> Overrides(const std::vector<std::string>& texts) {
  std::vector<Override> overrides;
  for (const std::string& text : texts) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0)
      throw UsageError("--set " + text + ": not KEY=VALUE, as in --set training.steps=100");
    overrides.push_back({text.substr(0, equals), text.substr(equals + 1)});
  }
  return overrides;
}

}  // namespace

void AddKernelOptions(CLI::App& command, BenchOptions& options) {
  command.add_option("JOB", options.job, "A job file: the kernels of its model, precision, micro-batch and length");
  command.add_option(
      "--model", options.model,
      "A preset (gpt2-124m, llama-1b, ...) in place of a job. With neither: square products and gpt2-124m");
  command.add_option("--set", options.overrides, "KEY=VALUE of the job, as ds-launch takes it; may be repeated")
      ->allow_extra_args(false);
  command
      .add_option(
          "--workers", options.workers,
          "Workers of the job, where its micro-batch follows from their number; 0: as many as ds-launch starts here")
      ->capture_default_str();
}

BenchWork KernelWork(const BenchRun& run) {
  const BenchOptions& options = run.options();
  if (!options.job.empty() && !options.model.empty()) throw UsageError("JOB and --model: write one of them");
  if (options.job.empty() && (!options.overrides.empty() || options.workers != 0))
    throw UsageError("--set and --workers are of a job: name its file");
  if (options.workers < 0) throw UsageError("--workers must not be negative");
  if (options.job.empty()) {
    BenchWork work = options.model.empty() ? DefaultWork(run.kind()) : WorkOfPreset(options.model, run.kind());
    if (run.on_gpu()) AddPlan(work, SpecOfPreset(options.model.empty() ? kDefaultPreset : options.model, work), 1);
    return work;
  }
  const int workers = options.workers > 0 ? options.workers : run.on_gpu() ? run.gpus() : 2;
  const JobSpec spec = LoadJobSpec(options.job, Overrides(options.overrides), workers);
  if (spec.training.device != DeviceChoice::automatic && (spec.training.device == DeviceChoice::gpu) != run.on_gpu()) {
    const std::string wants = spec.training.device == DeviceChoice::gpu ? "gpu" : "cpu";
    throw UsageError("training.device: " + wants + ", and this measures " + (run.on_gpu() ? "a GPU" : "the CPU") +
                     ": give --device " + wants + ", or --set training.device=auto");
  }
  BenchWork work = WorkOf(spec, run.kind());
  if (run.on_gpu()) AddPlan(work, spec, workers);
  return work;
}

void BenchKernels(BenchRun& run, const BenchWork& work, const Budget& budget) {
  BenchTable& table = run.table();
  BenchDevice device(run.OpenedGpu(), run.threads(), WorkspaceOf(work));
  DevicePeaks peaks = run.Peaks();
  const std::string where =
      run.on_gpu() ? run.file().device.name : std::to_string(run.threads()) + " threads of " + run.file().device.name;
  table.Section("kernels: " + work.title + ", on " + where);
  if (!run.on_gpu())
    for (const auto& [dtype, flops] : peaks.flops)
      table.Add({"fused multiply-adds", std::string("registers ") + NameOf(dtype), flops, 0, RateUnit::flops,
                 "the limit of products"});
  if (work.fp8 && !run.on_gpu())
    table.Add({"products of training.fp8", "", 0, 0, RateUnit::flops,
               "left out: a CPU computes them in bf16, behind conversions; those of bf16 stand below"});
  table.Progress("memory copy");
  const CopyRate copy = MeasureCopy(device, 0.02 * budget.Left());
  table.Add({"memory copy", std::to_string(copy.bytes >> 20) + " MiB", copy.bytes_per_second, peaks.memory_bytes,
             RateUnit::bytes, "the limit of what moves memory"});
  peaks.memory_bytes = copy.bytes_per_second;
  run.file().peak_flops = peaks.flops;
  MeasureKernels(device, work, peaks, budget, table, run.file());
}

}  // namespace ds
