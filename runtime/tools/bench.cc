// ds-bench: what this machine achieves, beside its limits.
#include "runtime/tools/bench.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>

#include "kernels/cpu_features.h"
#include "runtime/base/error.h"
#include "runtime/base/process.h"
#include "runtime/bench/collective_rank.h"
#include "runtime/tools/command_line.h"

namespace ds {
namespace {

constexpr char kHelp[] =
    "Measures this machine: how fast kernels, memory, links between ranks and disks are, beside their limits, and "
    "what\n"
    "the libraries take of a GPU's memory. `ds-bench COMMAND --help` explains a command.\n\n"
    "Examples:\n"
    "  ds-bench all                             everything; writes ./machine.yaml\n"
    "  ds-bench kernels --model gpt2-124m       the kernels of a model's training\n"
    "  ds-bench kernels JOB.yaml                those of a job, in its precision and micro-batch\n"
    "  ds-bench optimizer                       AdamW on the host, as ZeRO-Offload steps\n"
    "  ds-bench io --path /scratch --output machine.yaml\n"
    "                                           a disk; the rest of machine.yaml stays as it is\n\n"
    "The machine file is what plans are priced with: ds-launch JOB.yaml --dry-run --machine machine.yaml.\n"
    "Measure when nothing else runs here: all numbers are medians of repeats, of what is left to this program.";

/// Idle OpenMP threads spin for about a millisecond, as a worker's do that has the cores alone (agent/workers.cc). The
/// library reads its policy before main runs, so the program starts itself again, once.
void SpinAsWorkersDo(char** argv) {
  if (std::getenv("OMP_WAIT_POLICY") || std::getenv("GOMP_SPINCOUNT")) return;
  ::setenv("GOMP_SPINCOUNT", "20000", 1);
  ::execv(ExecutablePath().c_str(), argv);  // where that fails, waiting threads take a core more
}

void AddKernels(CLI::App& app, BenchOptions& options) {
  CLI::App& command = *app.add_subcommand(
      "kernels",
      "The kernels of a training step: matrix products and attention beside the peak, norms, activations, the loss "
      "and\n"
      "the optimizer beside the memory's bandwidth. On GPUs the algorithms of each product are timed, and the fastest\n"
      "is kept in the machine file.");
  AddKernelOptions(command, options);
  AddCommonOptions(command, options, 60, "");
  command.callback([&options] {
    BenchRun run(options, false);
    const BenchWork work = KernelWork(run);
    BenchKernels(run, work, Budget(options.seconds));
    run.Write();
  });
}

void AddMemory(CLI::App& app, BenchOptions& options) {
  CLI::App& command =
      *app.add_subcommand("memory",
                          "A copy in the device's memory, which other kernels are held against. On GPUs also copies "
                          "from and to page-locked\n"
                          "host memory, and what context, kernels, cuBLASLt and cuDNN take of the GPU's memory.");
  AddCommonOptions(command, options, 20, "");
  command.callback([&options] {
    BenchRun run(options, false);
    BenchMemory(run, Budget(options.seconds));
    run.Write();
  });
}

void AddOptimizer(CLI::App& app, BenchOptions& options) {
  CLI::App& command =
      *app.add_subcommand("optimizer",
                          "AdamW on the host, where ZeRO-Offload has it, by the size of master, moments and gradient; "
                          "the limit is a stream\n"
                          "of the same threads that reads and writes the same bytes and computes nothing.");
  AddOptimizerOptions(command, options);
  command.add_flag(
      "--turns", options.turns,
      "For scripts/bench/host_optimizer.py: of the first size, a line \"CASE step|stream RUNS\" of standard "
      "input is answered with the seconds of one of that many runs");
  AddCommonOptions(command, options, 30, "");
  command.callback([&options] {
    if (options.turns) return TakeTurns(options);
    BenchRun run(options, false);
    BenchOptimizer(run, Budget(options.seconds));
    run.Write();
  });
}

void AddCollectives(CLI::App& app, BenchOptions& options) {
  CLI::App& command = *app.add_subcommand(
      "collectives",
      "Collectives between ranks of this machine, each a process: over NCCL between GPUs, over Gloo between CPU\n"
      "processes. Bandwidths are nccl-tests': `achieved` is the bus bandwidth, what each rank's link carries; the note "
      "has\n"
      "the time and the algorithm bandwidth, bytes of the whole tensor a second.");
  AddCollectiveOptions(command, options);
  AddCommonOptions(command, options, 30, "");
  command.callback([&options] {
    BenchRun run(options, false);
    BenchCollectives(run, Budget(options.seconds));
    run.Write();
  });
}

void AddIo(CLI::App& app, BenchOptions& options) {
  CLI::App& command = *app.add_subcommand(
      "io",
      "Writing (a sync counted), reading, and both at once, as the file tier does them: with O_DIRECT, by io_uring "
      "where\n"
      "it is permitted; by blocks of several sizes and queues of several depths, of which the best are kept. The files "
      "have no\nnames: nothing is left of them.");
  command.alias("storage");
  AddIoOptions(command, options);
  AddCommonOptions(command, options, 60, "");
  command.callback([&options] {
    BenchRun run(options, false);
    const IoOptions io = IoOf(options);
    CheckIo(io);
    BenchIo(run, io, Budget(options.seconds));
    run.Write();
  });
}

/// One part; a failure is told, and the others go on. False: it failed.
bool Attempt(const char* part, const std::function<void()>& measure) {
  try {
    measure();
    return true;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s: %s\n", part, error.what());
    return false;
  }
}

void MeasureAll(const BenchOptions& options) {
  BenchRun run(options, true);
  const IoOptions io = IoOf(options);  // what is wrong with it is told before anything is measured
  CheckIo(io);
  OptimizerSizes(options);
  CollectiveRanks(run);
  const BenchWork work = KernelWork(run);
  const Budget budget(options.seconds);
  bool whole = true;
  whole &= Attempt("memory", [&] { BenchMemory(run, budget.Part(0.1 * options.seconds)); });
  whole &= Attempt("kernels", [&] { BenchKernels(run, work, budget.Part(0.4 * options.seconds)); });
  run.CloseGpu();
  whole &= Attempt("collectives", [&] { BenchCollectives(run, budget.Part(0.2 * options.seconds)); });
  whole &= Attempt("io", [&] { BenchIo(run, io, budget.Part(0.2 * options.seconds)); });
  // Last: what it must do at least, in much memory, may take longer than its share.
  whole &= Attempt("optimizer", [&] { BenchOptimizer(run, budget); });
  run.Write();
  if (!whole) throw RuntimeError("not everything was measured: the file has the rest");
}

void AddAll(CLI::App& app, BenchOptions& options) {
  CLI::App& command = *app.add_subcommand(
      "all", "memory, kernels, collectives, io and optimizer, one after another; writes the machine file.");
  AddKernelOptions(command, options);
  AddCollectiveOptions(command, options);
  AddIoOptions(command, options);
  AddOptimizerOptions(command, options);
  options.sizes = {"512MiB"};  // of the optimizer's state: beyond the caches, as it is beside a GPU
  AddCommonOptions(command, options, 120, "machine.yaml");
  command.callback([&options] { MeasureAll(options); });
}

}  // namespace
}  // namespace ds

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "rank") == 0) return ds::CollectiveRankMain(argc, argv);
  ds::SpinAsWorkersDo(argv);
  if (const char* missing = ds::MissingCpuFeature()) {
    std::fprintf(stderr,
                 "error: this processor lacks %s, for which the kernels were built: build with another "
                 "-DDEEPSHARD_CPU_ARCH\n",
                 missing);
    return static_cast<int>(ds::ExitCode::preflight);
  }
  const ds::EndOnSignal signals;
  ds::BenchOptions kernels, memory, optimizer, collectives, io, all;
  CLI::App app(ds::kHelp, "ds-bench");
  app.require_subcommand(0, 1);  // not (1): a misspelt command is to be named
  ds::AddAll(app, all);
  ds::AddKernels(app, kernels);
  ds::AddMemory(app, memory);
  ds::AddOptimizer(app, optimizer);
  ds::AddCollectives(app, collectives);
  ds::AddIo(app, io);
  app.callback([&] {
    if (app.get_subcommands().empty())
      throw ds::UsageError("a command is wanted: all, kernels, memory, optimizer, collectives or io");
  });
  return ds::RunCommandLine(app, argc, argv);
}
