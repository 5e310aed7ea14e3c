// What the commands of ds-bench share: device, machine file, signals.
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>

#include "kernels/matmul_choice.h"
#include "runtime/base/clock.h"
#include "runtime/base/cpu_name.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/nvml.h"
#include "runtime/base/signal.h"
#include "runtime/tools/bench.h"
#include "runtime/train/peak_memory.h"

namespace ds {
namespace {

namespace fs = std::filesystem;

/// Held while a file is being replaced.
std::mutex writing;

int AvailableCores() {
  cpu_set_t cores;
  return ::sched_getaffinity(0, sizeof cores, &cores) == 0 ? std::max(1, CPU_COUNT(&cores)) : 1;
}

std::string HostName() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 && *name ? name : "localhost";
}

/// The text behind "KEY:" in a file of such lines; empty where there is none.
std::string FieldOf(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const size_t begin = line.find_first_not_of(" \t:", key.size());
    return begin == std::string::npos ? "" : line.substr(begin, line.find_last_not_of(" \t") + 1 - begin);
  }
  return "";
}

int64_t HostMemory() {
  const std::string kib = FieldOf("/proc/meminfo", "MemTotal");
  return kib.empty() ? 0 : std::atoll(kib.c_str()) * 1024;
}

std::string Whose(const MachineFile& file) {
  return std::string(file.device.kind == DeviceKind::cuda ? "GPUs" : "CPU") + " '" + file.device.name + "' of host " +
         file.host;
}

bool SameMachine(const MachineFile& a, const MachineFile& b) {
  return a.host == b.host && a.device.kind == b.device.kind && a.device.name == b.device.name;
}

}  // namespace

struct EndOnSignal::Impl {
  SignalWatcher watcher{{SIGINT, SIGTERM, SIGHUP}, [](int signal) {
                          // Ranks die with this process, files for io have no names: all that is left to be
                          // careful of is the machine file.
                          const std::lock_guard lock(writing);
                          std::fprintf(stderr, "\nended by %s; nothing more is written\n", SignalName(signal).c_str());
                          ::_exit(128 + signal);
                        }};
};

EndOnSignal::EndOnSignal() : impl_(std::make_unique<Impl>()) {
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);  // a file beyond `ulimit -f` is a failed write, with a reason
}
EndOnSignal::~EndOnSignal() = default;

MachineFile DescribeMachine(bool on_gpu, int gpu, int threads) {
  MachineFile file;
  file.written = IsoTime(UnixNanoseconds());
  file.host = HostName();
  file.program = std::string("ds-bench ") + DEEPSHARD_VERSION;
  MachineDevice& device = file.device;
  if (!on_gpu) {
    device.name = CpuName();
    device.count = AvailableCores();
    device.memory_bytes = HostMemory();
    device.threads = threads;
    return file;
  }
  device.kind = DeviceKind::cuda;
  device.count = GpuCount();
  device.driver = GpuDriverVersion();
  device.cuda = GpuCudaVersion();
  const std::vector<GpuFacts> gpus = VisibleGpus();
  if (static_cast<size_t>(gpu) < gpus.size()) {
    device.name = gpus[static_cast<size_t>(gpu)].name;
    device.memory_bytes = gpus[static_cast<size_t>(gpu)].memory;
    device.compute_capability = gpus[static_cast<size_t>(gpu)].compute_capability;
  }
  if (device.name.empty()) device.name = OpenGpu(gpu)->name();  // the driver's library does not tell
  return file;
}

BenchRun::BenchRun(const BenchOptions& options, bool whole) : options_(options), table_(stdout) {
  if (!(options_.seconds > 0) || options_.seconds > 86400)
    throw UsageError("--seconds must be above 0, and at most a day");
  if (options_.threads < 0 || options_.threads > 4096) throw UsageError("--threads must be from 0 to 4096");
  threads_ = options_.threads > 0 ? options_.threads : AvailableCores();
  gpus_ = options_.device == "cpu" ? 0 : GpuCount();
  on_gpu_ = gpus_ > 0;
  if (options_.device == "gpu" && !on_gpu_)
    throw UsageError(HasGpuCode() ? "--device gpu: this machine has no GPU that this process may use"
                                  : "--device gpu: this ds-bench was built without GPU code");
  if (!on_gpu_ && options_.device == "auto" && !HasGpuCode() && !VisibleGpus().empty())
    std::fprintf(stderr,
                 "note: this machine has GPUs, and this ds-bench was built without GPU code: the CPU is measured\n");
  if (options_.gpu < 0 || (on_gpu_ ? options_.gpu >= gpus_ : options_.gpu != 0))
    throw UsageError("--gpu " + std::to_string(options_.gpu) + ": there are " + std::to_string(gpus_) +
                     " GPUs to measure, counted from 0");
  file_ = DescribeMachine(on_gpu_, options_.gpu, threads_);
  if (!options_.output.empty()) ReadOutput(whole);
}

void BenchRun::ReadOutput(bool whole) {
  const fs::path path = options_.output;
  std::error_code error;
  const fs::path folder = path.has_parent_path() ? path.parent_path() : ".";
  if (!fs::is_directory(folder, error))
    throw UsageError("--output " + path.string() + ": " + folder.string() + " is no folder");
  if (::access(folder.c_str(), W_OK) != 0)
    throw UsageError("--output " + path.string() + ": " +
                     SystemError("cannot write to " + folder.string(), errno).what());
  if (!fs::exists(path, error)) return;
  MachineFile old;
  try {
    old = ReadMachineFile(path);
  } catch (const UsageError& unreadable) {
    if (options_.force) return;
    throw UsageError(
        std::string(unreadable.what()) + "\n--output " + path.string() +
        " is there and is no machine file that this program reads: name another file, or --force replaces it");
  }
  if (!SameMachine(old, file_)) {
    if (options_.force) return;
    throw UsageError("--output " + path.string() + " is of another machine, " + Whose(old) + "; this is " +
                     Whose(file_) + ": name another file, or --force replaces it");
  }
  if (whole) return;
  if (old.device.threads != file_.device.threads) {
    if (options_.force) return;
    throw UsageError("--output " + path.string() + " was measured with " + std::to_string(old.device.threads) +
                     " threads, and now there are " + std::to_string(threads_) + ": write --threads " +
                     std::to_string(old.device.threads) + ", or --force begins a new file");
  }
  // What the machine is, and when, is told anew; what was measured stays.
  const MachineFile now = std::move(file_);
  file_ = std::move(old);
  file_.written = now.written, file_.program = now.program, file_.device = now.device;
}

const DevicePeaks& BenchRun::Peaks() {
  if (has_peaks_) return peaks_;
  if (on_gpu_) {
    peaks_ = KnownGpuPeaks(file_.device.name);
  } else {
    table_.Progress("fused multiply-adds");
    for (const DType dtype : {DType::f32, DType::f64})
      if (const double flops = CpuFmaFlops(dtype, threads_, 0.2); flops > 0) peaks_.flops[dtype] = flops;
  }
  has_peaks_ = true;
  return peaks_;
}

Gpu* BenchRun::OpenedGpu() {
  if (on_gpu_ && !gpu_) {
    gpu_ = OpenGpu(options_.gpu);
    file_.device.name = gpu_->name();  // as a worker asks for it, when it looks whether the file is of its GPU
  }
  return gpu_.get();
}

void BenchRun::Write() {
  if (options_.output.empty()) return;
  {
    const std::lock_guard lock(writing);
    WriteFileAtomically(options_.output, ToYaml(file_));
  }
  table_.Say("\nwritten: " + options_.output);
}

void AddCommonOptions(CLI::App& command, BenchOptions& options, double seconds, const char* output) {
  options.seconds = seconds;
  options.output = output;
  command.add_option("--device", options.device, "What to measure: auto (GPUs where there are some), cpu or gpu")
      ->check(CLI::IsMember({"auto", "cpu", "gpu"}))
      ->capture_default_str();
  command.add_option("--gpu", options.gpu, "Which GPU, by its place in CUDA_VISIBLE_DEVICES; collectives use all")
      ->capture_default_str();
  command.add_option("--threads", options.threads, "CPU threads of a rank; 0: all cores")->capture_default_str();
  command
      .add_option(
          "--seconds", options.seconds,
          "About how long it may take; what finds no time left is not measured. A kernel, call or sync that has "
          "begun is waited for")
      ->capture_default_str();
  command
      .add_option("--output,-o", options.output,
                  *output ? "The machine file to write"
                          : "Put what was measured into this machine file, which is made or keeps its other parts")
      ->check(CLI::Validator([](std::string& name) { return name.empty() ? "needs the name of a file" : ""; }, ""))
      ->capture_default_str();
  command.add_flag("--force", options.force, "Replace the output where it is another machine's file, or none");
}

}  // namespace ds
