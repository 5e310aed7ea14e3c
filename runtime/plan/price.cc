#include "runtime/plan/price.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>

#include "kernels/workspace.h"
#include "runtime/plan/executor_memory.h"
#include "runtime/plan/lifetime.h"
#include "runtime/plan/memory_map.h"
#include "runtime/plan/planner.h"
#include "runtime/plan/products.h"
#include "runtime/plan/rates.h"
#include "runtime/plan/stages.h"
#include "runtime/plan/timing.h"

namespace ds {
namespace {

double Rate(const Machine& machine, DType compute) {
  switch (compute) {
    case DType::f64:
      return machine.flops_f64;
    case DType::bf16:
    case DType::f16:
      return machine.flops_16bit;
    default:
      return machine.flops_f32;
  }
}

int64_t PieceBytes(const ModelLayout& layout, const Plan& plan, const Buffer& buffer, int bucket) {
  return layout.units[buffer.unit].buckets[bucket].numel() / layout.ranks *
         static_cast<int64_t>(SizeOf(DTypeOfState(buffer.state, plan.options.compute)));
}

/// Bytes that the action reads and writes; an alias counts as its share of what it is a part of.
int64_t Touched(const ModelLayout& layout, const Plan& plan, const Action& action) {
  int64_t bytes = 0;
  for (const Use& use : action.uses) {
    const Buffer& buffer = plan.buffers[use.buffer];
    int64_t size = buffer.bytes;
    if (buffer.alias_of >= 0)
      size = buffer.numel * static_cast<int64_t>(SizeOf(DTypeOfState(buffer.state, plan.options.compute)));
    // Norm and OptimizerStep look at owned ranges alone, also of a whole gradient.
    const bool owned =
        action.kind == ActionKind::norm || (action.kind == ActionKind::optimizer_step && plan.options.stage > 0);
    if (buffer.kind == BufferKind::resident && action.bucket >= 0)
      size = PieceBytes(layout, plan, buffer, action.bucket);
    else if (owned && buffer.whole)
      size /= layout.ranks;
    bytes += size * (use.access == Access::update ? 2 : 1);
  }
  return bytes;
}

/// Reading the operands of a product twice in 16 bits and writing them in 8 (kernels/fp8.h).
double QuantizeSeconds(const MatMulKey& key, const Machine& machine) {
  return 5.0 * static_cast<double>(key.m * key.k + key.n * key.k) / machine.memory_bytes;
}

/// Arithmetic of a compute action by what was measured of shapes; what is neither a product nor attention, and what
/// nothing was measured of, at the machine's rate. 8-bit products with their quantisation.
double ArithmeticSeconds(const ModelLayout& layout, const Plan& plan, const Action& action, const Machine& machine) {
  const std::optional<Pass> pass = PassOf(action.kind);
  double seconds = 0, rest = action.flops;
  if (pass && action.segment >= 0 && action.segment < static_cast<int>(layout.segments.size())) {
    const SegmentSpec& segment = layout.segments[action.segment];
    for (const ProductSpec& product : segment.products) {
      if (product.pass != *pass) continue;
      std::optional<double> rate = MatMulRateOf(machine.matmul, product.key);
      if (IsFp8(product.key.ab)) {
        seconds += QuantizeSeconds(product.key, machine);
        if (!rate) rate = machine.flops_8bit;
      }
      if (!rate) continue;
      const double flops = ProductFlops(product.key);
      seconds += flops / *rate;
      rest -= flops;
    }
    const bool backward = *pass == Pass::backward_input;
    const std::optional<double> rate =
        AttentionRateOf(machine.attention, {plan.options.compute, segment.attention.tokens, segment.attention.head_size,
                                            backward, plan.options.deterministic});
    if (rate && segment.attention.product_flops > 0 && *pass != Pass::backward_weight) {
      const double flops = segment.attention.product_flops * (backward ? 5 : 2);
      seconds += flops / *rate;
      rest -= flops;
    }
  }
  return seconds + std::max(0.0, rest) / Rate(machine, plan.options.compute);
}

/// Of the ranks that could share a rate, those that the job has.
double Sharers(const Plan& plan, int64_t ranks) {
  return static_cast<double>(std::clamp<int64_t>(ranks, 1, plan.options.world()));
}

}  // namespace

double ActionSeconds(const ModelLayout& layout, const Plan& plan, const Action& action, const Machine& machine) {
  auto collective = [&](CollectiveKind kind, int64_t bytes) {
    return layout.ranks > 1 ? CollectiveSeconds(machine.collectives, kind, layout.ranks, bytes) : std::nullopt;
  };
  const double latency = layout.ranks > 1 ? machine.latency_seconds * (layout.ranks - 1) : 0;
  switch (action.kind) {
    case ActionKind::release:
      return 0;
    case ActionKind::fetch:
    case ActionKind::store: {
      const bool disk = action.stream == StreamKind::read || action.stream == StreamKind::write;
      const LinkRate& rate = action.stream == StreamKind::fetch   ? machine.host_to_device
                             : action.stream == StreamKind::store ? machine.device_to_host
                             : action.stream == StreamKind::read  ? machine.file_read
                                                                  : machine.file_write;
      return rate.latency_seconds +
             static_cast<double>(action.bytes) / rate.bytes_per_second * (disk ? Sharers(plan, machine.disk_ranks) : 1);
    }
    case ActionKind::gather:
      if (const auto seconds = collective(CollectiveKind::all_gather, action.bytes)) return *seconds;
      return latency + static_cast<double>(action.bytes) / machine.link_bytes;
    case ActionKind::reduce: {
      const int64_t bucket = layout.units[action.unit].buckets[action.bucket].numel() *
                             static_cast<int64_t>(SizeOf(DTypeOfState(StateKind::gradient, plan.options.compute)));
      const int64_t part = action.all ? action.bytes / 2 : action.bytes;  // of each of the two collectives
      const auto reduced = collective(CollectiveKind::reduce_scatter, part);
      const auto gathered = action.all ? collective(CollectiveKind::all_gather, part) : std::optional(0.0);
      if (reduced && gathered)  // what it measures includes the sums; the rank's piece is then put into its place
        return *reduced + *gathered + 2.0 * static_cast<double>(bucket) / layout.ranks / machine.memory_bytes;
      return latency * (action.all ? 2 : 1) + static_cast<double>(action.bytes) / machine.link_bytes +
             2.0 * static_cast<double>(bucket) / machine.memory_bytes;
    }
    case ActionKind::send:
    case ActionKind::receive:
      return machine.latency_seconds + static_cast<double>(action.bytes) / machine.link_bytes;
    case ActionKind::norm:
      return collective(CollectiveKind::all_gather, action.bytes)
                 .value_or(machine.latency_seconds * (plan.options.world() - 1) +
                           static_cast<double>(action.bytes) / machine.link_bytes) +
             static_cast<double>(Touched(layout, plan, action)) / machine.memory_bytes;
    default:
      if (action.stream == StreamKind::host)
        return static_cast<double>(Touched(layout, plan, action)) / machine.host_memory_bytes *
               Sharers(plan, machine.host_memory_ranks);
      return std::max(ArithmeticSeconds(layout, plan, action, machine),
                      static_cast<double>(Touched(layout, plan, action)) / machine.memory_bytes);
  }
}

namespace {

/// What the kernels of a GPU's compute stream share: those of segments, and the sums of squares of a rank's gradients.
int64_t GpuWorkspaceBytes(const ModelLayout& layout, const StageParts& parts) {
  int64_t squares = 0;
  for (size_t u = 0; u < layout.units.size(); ++u)
    for (const Bucket& bucket : layout.units[u].buckets)
      if (parts.owned[u]) squares += SumOfSquaresWorkspaceBytes(bucket.numel() / layout.ranks);
  int64_t bytes = squares;
  for (size_t s = 0; s < layout.segments.size(); ++s)
    if (parts.segments[s]) bytes = std::max(bytes, layout.segments[s].gpu_workspace);
  return bytes;
}

}  // namespace

Machine DefaultMachine(DeviceKind device) {
  Machine machine;
  if (device == DeviceKind::cpu) return machine;
  machine.flops_f32 = 40e12;
  machine.flops_16bit = 600e12;
  machine.flops_8bit = 1100e12;  // the data sheet's share of its peak that 16 bits reach, less what fp32 sums cost
  machine.flops_f64 = 30e12;
  machine.memory_bytes = 3.5e12;
  machine.link_bytes = 190e9;
  machine.latency_seconds = 40e-6;
  machine.host_to_device = machine.device_to_host = {10e-6, 50e9};  // PCIe 5, 16 lanes, pinned memory
  machine.file_read = {100e-6, 5e9};
  machine.file_write = {100e-6, 3e9};
  machine.host_memory_bytes = 150e9;  // a GPU's share of a server's
  machine.library_bytes = int64_t{560} << 20;
  machine.first_communicator_bytes = int64_t{672} << 20;  // NCCL with 16 channels
  machine.communicator_bytes = int64_t{294} << 20;
  return machine;
}

Machine MachineOf(const MachineFile& file) {
  Machine machine = DefaultMachine(file.device.kind);
  std::map<DType, double> best;
  for (const MatMulRate& rate : file.matmul) {
    double& highest = best[SizeOf(rate.dtype) == 2 ? DType::bf16 : IsFp8(rate.dtype) ? DType::f8_e4m3 : rate.dtype];
    highest = std::max(highest, rate.flops_per_second);
  }
  if (best.contains(DType::f32)) machine.flops_f32 = best[DType::f32];
  if (best.contains(DType::bf16)) machine.flops_16bit = best[DType::bf16];
  if (best.contains(DType::f8_e4m3)) machine.flops_8bit = best[DType::f8_e4m3];
  if (best.contains(DType::f64)) machine.flops_f64 = best[DType::f64];
  if (file.host_to_device.bytes_per_second > 0) machine.host_to_device = file.host_to_device;
  if (file.device_to_host.bytes_per_second > 0) machine.device_to_host = file.device_to_host;
  if (file.host_optimizer.bytes_per_second > 0) machine.host_memory_bytes = file.host_optimizer.bytes_per_second;
  // All of a host's GPUs are taken to have a rank; how many ranks share the cores of a CPU is not known.
  if (file.device.kind == DeviceKind::cuda && file.host_optimizer.bytes_per_second > 0)
    machine.host_memory_ranks = file.device.count;
  if (file.memory_bytes_per_second > 0) machine.memory_bytes = file.memory_bytes_per_second;
  machine.library_bytes = file.libraries.library_bytes.value_or(machine.library_bytes);
  machine.first_communicator_bytes = file.libraries.first_communicator_bytes.value_or(machine.first_communicator_bytes);
  machine.communicator_bytes = file.libraries.communicator_bytes.value_or(machine.communicator_bytes);
  machine.matmul = file.matmul;
  machine.attention = file.attention;
  machine.collectives = file.collectives;
  return machine;
}

namespace {

bool IsBeneath(const std::string& folder, const std::string& disk) {
  return folder.compare(0, disk.size(), disk) == 0 &&
         (folder.size() == disk.size() || disk.back() == '/' || folder[disk.size()] == '/');
}

const DiskRate& DiskOf(const std::string& folder, const std::vector<DiskRate>& disks) {
  const DiskRate* best = nullptr;
  for (const DiskRate& disk : disks)
    if (IsBeneath(folder, disk.path) && (!best || disk.path.size() > best->path.size())) best = &disk;
  if (best) return *best;
  return *std::min_element(disks.begin(), disks.end(), [](const DiskRate& a, const DiskRate& b) {
    return a.write_bytes_per_second < b.write_bytes_per_second;
  });
}

void TakeDisks(const MachineFile& file, const std::vector<std::string>& folders, Machine& machine) {
  const std::vector<DiskRate>& disks = file.disks;
  if (disks.empty() || folders.empty()) return;
  std::set<const DiskRate*> used;
  for (const std::string& folder : folders) used.insert(&DiskOf(folder, disks));
  double read = 0, write = 0;
  for (const DiskRate* disk : used) {
    read += disk->read_bytes_per_second;
    write += disk->write_bytes_per_second;
  }
  if (file.device.kind == DeviceKind::cuda) machine.disk_ranks = file.device.count;
  if (read > 0) machine.file_read.bytes_per_second = read;
  if (write > 0) machine.file_write.bytes_per_second = write;
}

}  // namespace

Machine MachineFor(const std::optional<MachineFile>& file, DeviceKind device, const std::vector<std::string>& folders) {
  if (!file || file->device.kind != device) return DefaultMachine(device);
  Machine machine = MachineOf(*file);
  TakeDisks(*file, folders, machine);
  return machine;
}

int64_t Machine::LibraryBytes(const PlanOptions& options) const {
  // The compute stream's, of all ranks; those of the stage's ranks; those to other stages.
  const int64_t further = (options.ranks > 1 ? 2 : 0) + static_cast<int64_t>(MessageStreamsOf(options).size());
  return library_bytes + (options.world() > 1 ? first_communicator_bytes : 0) + further * communicator_bytes;
}

int64_t SnapshotBytes(const ModelLayout& layout, const PlanOptions& options) {
  if (!options.training || !options.snapshot) return 0;
  const std::vector<bool> owned = PartsOf(layout, options).owned;
  int64_t elements = 0;
  for (int unit = 0; unit < static_cast<int>(layout.units.size()); ++unit)
    if (owned[unit]) elements += layout.ShardNumel(unit);
  return elements * (1 + options.moments) * static_cast<int64_t>(SizeOf(DType::f32));
}

int64_t ResidentFileBytes(const ModelLayout& layout, const Plan& plan) {
  int64_t bytes = 0;
  for (const Buffer& buffer : plan.buffers)
    if (buffer.kind == BufferKind::resident && buffer.tier == Tier::file)
      for (int b = 0; b < static_cast<int>(layout.units[buffer.unit].buckets.size()); ++b)
        bytes += FileRoundUp(PieceBytes(layout, plan, buffer, b));
  return bytes;
}

Price PriceOf(const ModelLayout& layout, const Plan& plan, const Machine& machine) {
  Price price;
  for (const Buffer& buffer : plan.buffers)
    if (buffer.kind == BufferKind::resident) price.resident_bytes[static_cast<int>(buffer.tier)] += buffer.bytes;
  price.resident_bytes[static_cast<int>(Tier::file)] = ResidentFileBytes(layout, plan);
  for (int t = 0; t < kTiers; ++t) {
    price.arena_bytes[t] = plan.arena_bytes[t];
    price.peak_bytes[t] = price.resident_bytes[t] + price.arena_bytes[t];
  }
  if (plan.options.device == DeviceKind::cuda) {
    price.workspace_bytes = GpuWorkspaceBytes(layout, PartsOf(layout, plan.options));
    price.executor_bytes = kExecutors * ExecutorBytes(layout, plan.options) + TableBytes(layout);
    if (HasPending(plan)) price.executor_bytes += ExecutorBytes(layout, UpdatesOnly(plan.options));
  }
  price.peak_bytes[static_cast<int>(Tier::device)] +=
      machine.LibraryBytes(plan.options) + price.workspace_bytes + price.executor_bytes;
  price.snapshot_bytes = SnapshotBytes(layout, plan.options);
  price.peak_bytes[static_cast<int>(Tier::host)] += price.snapshot_bytes;

  const PlanTiming timing = TimeTogether(layout, {&plan}, machine).front();
  price.compute_seconds = timing.compute_seconds;
  price.step_seconds = timing.end.empty() ? 0 : *std::max_element(timing.end.begin(), timing.end.end());
  price.exposed_comm_seconds = price.step_seconds - price.compute_seconds;
  return price;
}

void PriceTogether(const ModelLayout& layout, std::vector<Plan>& stages, const Machine& machine) {
  std::vector<const Plan*> plans;
  for (const Plan& plan : stages) plans.push_back(&plan);
  const std::vector<PlanTiming> timings = TimeTogether(layout, plans, machine);
  double step = 0;
  for (const PlanTiming& timing : timings)
    for (double end : timing.end) step = std::max(step, end);
  for (size_t p = 0; p < stages.size(); ++p) {
    stages[p].price.step_seconds = step;
    stages[p].price.exposed_comm_seconds = step - timings[p].compute_seconds;
  }
}

MemoryBreakdown BreakDown(const Plan& plan, Tier tier, const Machine& machine) {
  MemoryBreakdown total;
  for (const Buffer& buffer : plan.buffers) {
    if (buffer.kind != BufferKind::resident || buffer.tier != tier) continue;
    switch (buffer.state) {
      case StateKind::working:
        total.working += buffer.bytes;
        break;
      case StateKind::master:
        total.master += buffer.bytes;
        break;
      case StateKind::moment1:
      case StateKind::moment2:
        total.moments += buffer.bytes;
        break;
      case StateKind::gradient:
        total.gradients += buffer.bytes;
        break;
      case StateKind::none:
        break;
    }
  }

  const std::vector<Lifetime> lifetimes = Lifetimes(plan);
  std::vector<int64_t> change(plan.actions.size() + 1, 0);
  auto alive = [&](size_t b) {
    return plan.buffers[b].kind != BufferKind::resident && plan.buffers[b].tier == tier && lifetimes[b].first >= 0;
  };
  for (size_t b = 0; b < plan.buffers.size(); ++b) {
    if (!alive(b)) continue;
    change[lifetimes[b].first] += plan.buffers[b].bytes;
    change[lifetimes[b].last + 1] -= plan.buffers[b].bytes;
  }
  int64_t now = 0, most = 0;
  int peak = 0;
  for (size_t a = 0; a < plan.actions.size(); ++a)
    if ((now += change[a]) > most) most = now, peak = static_cast<int>(a);

  for (size_t b = 0; b < plan.buffers.size(); ++b) {
    if (!alive(b) || lifetimes[b].first > peak || lifetimes[b].last < peak) continue;
    const Buffer& buffer = plan.buffers[b];
    switch (buffer.kind) {
      case BufferKind::gathered:
        total.gathered += buffer.bytes;
        break;
      case BufferKind::gradient:
      case BufferKind::workspace:
        total.reducing += buffer.bytes;
        break;
      case BufferKind::staging:
        total.staging += buffer.bytes;
        break;
      default:
        total.activations += buffer.bytes;
    }
  }
  total.gaps = plan.arena_bytes[static_cast<int>(tier)] - most;
  if (tier == Tier::device) total.libraries = machine.LibraryBytes(plan.options);
  return total;
}

std::string FormatBytes(int64_t bytes) {
  static const char* const kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (value >= 1024 && unit < 5) value /= 1024, ++unit;
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
  return text;
}

}  // namespace ds
