// What a plan costs: bytes exactly, time by a model of the machine.
//
// Bytes: the tensors of the plan, placed, and what the libraries take. Time: the actions run as the executor runs them,
// each stream in order and after its waits; a compute action takes the longer of its arithmetic and of moving its
// bytes, a collective its latency and the bytes that this rank sends. Where shapes were measured (a machine file), the
// arithmetic is that of the action's products and attention, each at the rate of the nearest one (rates.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/plan/machine_file.h"
#include "runtime/plan/plan.h"

namespace ds {

/// Achieved rates of the machine that runs a rank. The defaults are one modest CPU core and ranks on one host that talk
/// TCP over loopback; what a run measured stands beside the prediction in summary.json.
struct Machine {
  double flops_f32 = 40e9;    ///< matrix products, a second
  double flops_16bit = 40e9;  ///< bf16 and fp16: a CPU without 16-bit units converts and uses the fp32 ones
  double flops_8bit = 20e9;   ///< fp8: a CPU computes them as bf16, behind conversions
  double flops_f64 = 20e9;
  double memory_bytes = 6e9;       ///< read or written, a second
  double link_bytes = 1e9;         ///< sent by a rank, a second
  double latency_seconds = 50e-6;  ///< of one message
  /// Between tiers, a second. A CPU's device tier is memory of its host. Files: of all paths together.
  LinkRate host_to_device{0, 3e9}, device_to_host{0, 3e9}, file_read{100e-6, 1e9}, file_write{100e-6, 0.8e9};
  double host_memory_bytes = 6e9;                 ///< read or written by the optimizer on the host, a second
  int64_t host_memory_ranks = 1, disk_ranks = 1;  ///< that share those rates, where the job has as many
  /// Memory of libraries beyond the plan's buffers, once training runs. A CPU's: oneDNN's scratchpads and kernels, the
  /// transport's buffers, thread stacks and the heap's slack. A GPU's: the context and the kernels' code.
  int64_t library_bytes = 12 << 20;
  /// Device memory of the first communicator of a process, and of each further one.
  int64_t first_communicator_bytes = 0, communicator_bytes = 0;

  /// Of a machine file; empty: everything at the rates above.
  std::vector<MatMulRate> matmul;
  std::vector<AttentionRate> attention;
  std::vector<CollectiveRate> collectives;

  /// What all of that is for a plan: its communicators, and the libraries.
  int64_t LibraryBytes(const PlanOptions& options) const;
};

/// What is assumed of a machine that nobody has measured: the defaults above, or one H200 of a host with NVLink.
Machine DefaultMachine(DeviceKind device);

/// The machine that a file describes. What the file does not have is DefaultMachine's; the rates of work that is no
/// measured shape are the highest that was measured of the dtype.
Machine MachineOf(const MachineFile& file);

/// What a plan for `device` is priced with: the file's machine, or the default where there is no file, or one of
/// another kind of device. `folders` hold the file tier: they take the rates of the measured disks that they are on
/// (the disk with the longest path above the folder; where none has, the slowest), all together.
Machine MachineFor(const std::optional<MachineFile>& file, DeviceKind device,
                   const std::vector<std::string>& folders = {});

/// Bytes of the copy that an asynchronous checkpoint is written from: this rank's shard of every unit's fp32 master and
/// moments, whatever the stage; 0 where the plan has none.
int64_t SnapshotBytes(const ModelLayout& layout, const PlanOptions& options);

/// Bytes of the file tier that a plan's resident buffers take.
int64_t ResidentFileBytes(const ModelLayout& layout, const Plan& plan);

/// What an action takes once it begins.
double ActionSeconds(const ModelLayout& layout, const Plan& plan, const Action& action, const Machine& machine);

/// The price of a placed plan. Of one stage of a pipeline the time is as if it never waited for other stages.
Price PriceOf(const ModelLayout& layout, const Plan& plan, const Machine& machine);

/// Sets what the plans of a pipeline's stages, one of each, cost in time together: a step, and the part of it in which
/// a stage does not compute.
void PriceTogether(const ModelLayout& layout, std::vector<Plan>& stages, const Machine& machine);

/// Bytes at the moment when most are alive, by what they are for.
struct MemoryBreakdown {
  int64_t working = 0, master = 0, moments = 0, gradients = 0;  ///< resident
  int64_t activations = 0;  ///< kept and in flight: activation, activation_grad, saved, carried, scratch
  int64_t gathered = 0;     ///< parameters of other ranks (ZeRO-3)
  int64_t reducing = 0;     ///< whole gradients and workspace on their way to a shard
  int64_t staging = 0;      ///< pieces of state on their way between tiers
  int64_t gaps = 0;         ///< of the arena: alignment, and memory that no buffer fits
  int64_t libraries = 0;
};
MemoryBreakdown BreakDown(const Plan& plan, Tier tier, const Machine& machine);

/// "512 B", "1.5 GiB".
std::string FormatBytes(int64_t bytes);

}  // namespace ds
