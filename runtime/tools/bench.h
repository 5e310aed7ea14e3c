// The commands of ds-bench, one a file: bench_NAME.cc; and what they share.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/gpu.h"
#include "runtime/bench/budget.h"
#include "runtime/bench/io.h"
#include "runtime/bench/peaks.h"
#include "runtime/bench/table.h"
#include "runtime/bench/timer.h"
#include "runtime/bench/work.h"
#include "runtime/plan/machine_file.h"

namespace CLI {
class App;
}

namespace ds {

struct BenchOptions {
  double seconds = 0;
  std::string device = "auto", output;
  bool force = false;
  int gpu = 0, threads = 0;  ///< threads 0: all cores
  // kernels
  std::string job, model;
  std::vector<std::string> overrides;
  int workers = 0;  ///< of the job; 0: as ds-launch would start here
  // collectives
  int ranks = 0;  ///< 0: the node's GPUs, else 2
  // io
  std::vector<std::string> paths = {"."}, blocks;
  std::vector<int> depths;
  std::string size = "1GiB", backend = "any";
  bool page_cache = false;
  // optimizer
  std::vector<std::string> sizes = {"1MiB", "16MiB", "256MiB", "1GiB"};
  bool turns = false;  ///< measure what standard input asks for
};

/// What one run of ds-bench measures on, writes to, and knows so far.
class BenchRun {
 public:
  /// Checks the options, and reads the output file where there is one. `whole`: it is to be replaced as a whole.
  /// Throws UsageError: options that make no sense, no such device, another machine's file without --force.
  BenchRun(const BenchOptions& options, bool whole);

  const BenchOptions& options() const { return options_; }
  bool on_gpu() const { return on_gpu_; }
  DeviceKind kind() const { return on_gpu_ ? DeviceKind::cuda : DeviceKind::cpu; }
  int threads() const { return threads_; }
  int gpus() const { return gpus_; }
  BenchTable& table() { return table_; }
  MachineFile& file() { return file_; }

  /// The device's peaks: of a GPU known ones, of a CPU measured on the first call.
  const DevicePeaks& Peaks();
  /// The GPU, opened on the first call; null on CPUs. CloseGpu gives its memory back.
  Gpu* OpenedGpu();
  void CloseGpu() { gpu_.reset(); }

  /// Writes the file, where one was asked for, and says so.
  void Write();

 private:
  void ReadOutput(bool whole);

  const BenchOptions options_;
  bool on_gpu_ = false;
  int threads_ = 1, gpus_ = 0;
  BenchTable table_;
  MachineFile file_;
  std::unique_ptr<Gpu> gpu_;
  DevicePeaks peaks_;
  bool has_peaks_ = false;
};

/// --device, --gpu, --threads, --seconds, --output, --force.
void AddCommonOptions(CLI::App& command, BenchOptions& options, double seconds, const char* output);
void AddKernelOptions(CLI::App& command, BenchOptions& options);
void AddCollectiveOptions(CLI::App& command, BenchOptions& options);
void AddIoOptions(CLI::App& command, BenchOptions& options);
void AddOptimizerOptions(CLI::App& command, BenchOptions& options);

/// The parts: each measures, shows and fills the run's file.
BenchWork KernelWork(const BenchRun& run);
void BenchKernels(BenchRun& run, const BenchWork& work, const Budget& budget);
void BenchMemory(BenchRun& run, const Budget& budget);
/// Parameters of each of the sizes that the options ask for. Throws UsageError.
std::vector<int64_t> OptimizerSizes(const BenchOptions& options);
void BenchOptimizer(BenchRun& run, const Budget& budget);
/// For scripts/bench/host_optimizer.py.
void TakeTurns(const BenchOptions& options);
/// The ranks that the options ask for; 1: there is one GPU, and nothing to measure. Throws UsageError.
int CollectiveRanks(const BenchRun& run);
void BenchCollectives(BenchRun& run, const Budget& budget);
/// CheckIo of the options comes first.
IoOptions IoOf(const BenchOptions& options);
void BenchIo(BenchRun& run, const IoOptions& io, const Budget& budget);

/// What the machine is: host, device, time, program.
MachineFile DescribeMachine(bool on_gpu, int gpu, int threads);

/// Ends the process on SIGINT, SIGTERM and SIGHUP, once no file is half-written: made first in main.
class EndOnSignal {
 public:
  EndOnSignal();
  ~EndOnSignal();
  EndOnSignal(const EndOnSignal&) = delete;
  EndOnSignal& operator=(const EndOnSignal&) = delete;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ds
