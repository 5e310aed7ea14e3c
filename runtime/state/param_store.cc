#include "runtime/state/param_store.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "kernels/elementwise.h"
#include "kernels/random.h"
#include "runtime/base/error.h"
#include "runtime/plan/stages.h"

namespace ds {
namespace {

constexpr int64_t kBufferAlignment = 64;  // bytes
static_assert(FileTier::kAlignment == kFileAlignment, "the plan prices what the tier allocates");
constexpr int64_t kChunk = 1 << 20;  // elements that pass through fp32 on their way into a 16-bit copy, or to a GPU

int64_t AlignUp(int64_t bytes) { return (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment; }

/// FNV-1a, 64 bits: the site of a parameter's random stream.
uint64_t HashOf(const std::string& name) {
  uint64_t hash = 14695981039346656037ull;
  for (unsigned char c : name) hash = (hash ^ c) * 1099511628211ull;
  return hash;
}

}  // namespace

StateSource InitialState(uint64_t seed, const KernelContext& context) {
  return [seed, context](const ParamSpec& param, StateKind state, int64_t begin, Tensor out) {
    if (state != StateKind::master) return Fill(context, out, 0.0);
    switch (param.init) {
      case InitKind::normal:
        return FillNormal(context, RandomStream{seed, HashOf(param.name)}, static_cast<uint64_t>(begin), 0.0f,
                          static_cast<float>(param.stddev), out);
      case InitKind::ones:
        return Fill(context, out, 1.0);
      case InitKind::zeros:
        return Fill(context, out, 0.0);
    }
  };
}

ParamStore::ParamStore(const ModelLayout& layout, const Plan& plan, Gpu* gpu, FileTier* files)
    : layout_(layout),
      compute_(plan.options.compute),
      rank_(plan.options.rank),
      owned_(PartsOf(layout, plan.options).owned),
      gpu_(gpu),
      files_(files) {
  if (files_) lane_ = std::make_unique<FileLane>(*files_);
  int64_t sizes[kTiers] = {};
  std::vector<int64_t> offsets(plan.buffers.size(), -1);
  for (size_t b = 0; b < plan.buffers.size(); ++b) {
    const Buffer& buffer = plan.buffers[b];
    if (buffer.kind != BufferKind::resident || buffer.alias_of >= 0) continue;
    if (buffer.tier == Tier::file) continue;
    offsets[b] = sizes[static_cast<int>(buffer.tier)];
    sizes[static_cast<int>(buffer.tier)] += AlignUp(buffer.bytes);
  }
  for (int tier = 0; tier < kTiers; ++tier)
    memory_[tier] =
        static_cast<Tier>(tier) == Tier::device ? Memory(sizes[tier], gpu) : Memory::OfHost(sizes[tier], gpu);

  for (size_t b = 0; b < plan.buffers.size(); ++b) {
    const Buffer& buffer = plan.buffers[b];
    if (buffer.kind != BufferKind::resident) continue;
    Entry entry{buffer, {}, {}};
    if (buffer.tier == Tier::file) {
      if (!files_) throw RuntimeError("buffer " + buffer.name + ": there are no files to keep it in");
      const int64_t element = static_cast<int64_t>(SizeOf(DTypeOfState(buffer.state, compute_)));
      for (const Bucket& bucket : layout.units[buffer.unit].buckets)
        entry.file_offsets.push_back(files_->Allocate(bucket.numel() / layout.ranks * element));
      entries_.push_back(std::move(entry));
      continue;
    }
    const int64_t unit_numel = layout.units[buffer.unit].numel;
    const DType dtype = buffer.state == StateKind::working ? compute_ : DType::f32;
    if (buffer.alias_of >= 0) {
      // fp32: the master is (this rank's part of) the working copy, in the same places.
      const Buffer& target = plan.buffers[buffer.alias_of];
      const Tensor bytes = memory_[static_cast<int>(target.tier)].Bytes(offsets[buffer.alias_of], target.bytes);
      entry.buffer.whole = target.whole;
      entry.data =
          Tensor(bytes.data, DType::f32, Shape{target.whole ? unit_numel : unit_numel / layout.ranks}, bytes.device);
    } else {
      const int64_t numel = buffer.whole ? unit_numel : unit_numel / layout.ranks;
      if (numel * static_cast<int64_t>(SizeOf(dtype)) != buffer.bytes)
        throw RuntimeError("buffer " + buffer.name + ": " + std::to_string(buffer.bytes) + " bytes for " +
                           std::to_string(numel) + " elements of " + NameOf(dtype));
      const Tensor bytes = memory_[static_cast<int>(buffer.tier)].Bytes(offsets[b], buffer.bytes);
      entry.data = Tensor(bytes.data, dtype, Shape{numel}, bytes.device);
    }
    entries_.push_back(entry);
  }
}

const ParamStore::Entry* ParamStore::FindEntry(int unit, StateKind state, int slot) const {
  for (const Entry& entry : entries_)
    if (entry.buffer.unit == unit && entry.buffer.state == state && entry.buffer.slot == slot) return &entry;
  return nullptr;
}

Tensor ParamStore::Resident(const Buffer& buffer) const {
  const Entry* entry = FindEntry(buffer.unit, buffer.state, buffer.slot);
  if (!entry || !entry->data) throw RuntimeError("the parameter store holds no buffer " + buffer.name + " in memory");
  return entry->data;
}

int64_t ParamStore::FileOffset(const Buffer& buffer, int bucket) const {
  const Entry* entry = FindEntry(buffer.unit, buffer.state, buffer.slot);
  if (!entry || entry->file_offsets.empty())
    throw RuntimeError("the parameter store holds no buffer " + buffer.name + " in files");
  return entry->file_offsets.at(bucket);
}

UnitTensor ParamStore::Find(int unit, StateKind state, int slot) const {
  const Entry* entry = FindEntry(unit, state, slot);
  return entry ? UnitTensor{entry->data, entry->buffer.whole} : UnitTensor();
}

void ParamStore::Fill(const StateSource& source, const KernelContext* on_gpu) {
  for (int unit = 0; unit < static_cast<int>(layout_.units.size()); ++unit)
    for (StateKind state : {StateKind::working, StateKind::master, StateKind::moment1, StateKind::moment2})
      if (const Entry* entry = FindEntry(unit, state, -1)) {
        if (entry->data)
          FillTensor(unit, state, {entry->data, entry->buffer.whole}, source, on_gpu);
        else
          FillFiles(*entry, source);
      }
}

/// Padding is zero.
void ParamStore::FillFiles(const Entry& entry, const StateSource& source) {
  const int unit_index = entry.buffer.unit;
  const ParamUnit& unit = layout_.units[unit_index];
  const StateKind wanted = entry.buffer.state == StateKind::working ? StateKind::master : entry.buffer.state;
  const DType dtype = DTypeOfState(entry.buffer.state, compute_);
  const int64_t element = static_cast<int64_t>(SizeOf(dtype));
  const std::vector<ShardRange> ranges = layout_.ShardRanges(unit_index, rank_);
  std::vector<float> values;
  std::vector<std::byte> bytes;
  for (size_t bucket = 0; bucket < ranges.size(); ++bucket) {
    for (int64_t done = 0; done < ranges[bucket].count; done += kChunk) {
      const int64_t count = std::min(kChunk, ranges[bucket].count - done), begin = ranges[bucket].unit_begin + done;
      values.assign(static_cast<size_t>(count), 0.0f);
      for (const ParamRun& run : ParamRuns(unit, begin, count))
        source(unit.params[run.param].spec, wanted, run.begin,
               Tensor::Of(values.data() + (run.unit_begin - begin), Shape{run.count}));
      bytes.resize(static_cast<size_t>(count * element));
      Cast(KernelContext(), Tensor::Of(values.data(), Shape{count}), Tensor(bytes.data(), dtype, Shape{count}));
      lane_->Write(entry.file_offsets[bucket] + done * element, bytes.data(), count * element);
    }
  }
}

void ParamStore::ReadFiles(const StateRun& run, int64_t first, Tensor out) const {
  lane_->Read(run.file_offset + first * static_cast<int64_t>(sizeof(float)), out.data, out.bytes());
}

// Padding is left as it was allocated: zero.
void ParamStore::FillTensor(int unit_index, StateKind state, const UnitTensor& tensor, const StateSource& source,
                            const KernelContext* on_gpu) {
  const ParamUnit& unit = layout_.units[unit_index];
  const StateKind wanted = state == StateKind::working ? StateKind::master : state;
  const std::vector<ShardRange> ranges =
      tensor.whole ? std::vector{ShardRange{0, 0, unit.numel}} : layout_.ShardRanges(unit_index, rank_);
  const bool there = on_gpu && tensor.data.device.kind == DeviceKind::cuda;  // the source writes to the GPU
  const bool direct = tensor.data.dtype == DType::f32 && (there || tensor.data.device.kind == DeviceKind::cpu);
  std::vector<float> chunk;
  std::vector<std::byte> rounded;  // the same in the tensor's dtype, on its way to a GPU
  for (const ShardRange& range : ranges) {
    for (const ParamRun& run : ParamRuns(unit, range.unit_begin, range.count)) {
      const ParamSpec& spec = unit.params[run.param].spec;
      if (direct) {
        source(spec, wanted, run.begin, tensor.Part(range, run.unit_begin, run.count));
        continue;
      }
      if (there) {
        FillRounded(spec, run.begin, tensor.Part(range, run.unit_begin, run.count), source, *on_gpu);
        continue;
      }
      for (int64_t done = 0; done < run.count; done += kChunk) {
        const int64_t count = std::min(kChunk, run.count - done);
        chunk.resize(static_cast<size_t>(count));
        const Tensor values = Tensor::Of(chunk.data(), Shape{count});
        source(spec, wanted, run.begin + done, values);
        const Tensor part = tensor.Part(range, run.unit_begin + done, count);
        if (part.device.kind == DeviceKind::cpu) {
          Cast(KernelContext(), values, part);
          continue;
        }
        rounded.resize(static_cast<size_t>(part.bytes()));
        const Tensor staged(rounded.data(), part.dtype, part.shape);
        Cast(KernelContext(), values, staged);
        CopyNow(gpu_, staged, part);
      }
    }
  }
}

/// By way of fp32 in the workspace.
void ParamStore::FillRounded(const ParamSpec& spec, int64_t begin, const Tensor& part, const StateSource& source,
                             const KernelContext& on_gpu) {
  const int64_t room = on_gpu.workspace_bytes / static_cast<int64_t>(sizeof(float));
  if (room == 0) throw std::invalid_argument("ParamStore::Fill: a GPU's tensors need a workspace");
  for (int64_t done = 0; done < part.numel(); done += room) {
    const int64_t count = std::min(room, part.numel() - done);
    const Tensor values(on_gpu.workspace, DType::f32, Shape{count}, part.device);
    source(spec, StateKind::master, begin + done, values);
    Cast(on_gpu, values, part.Flat(done, count));
  }
}

std::vector<StateRun> ParamStore::Owned() const {
  std::vector<StateRun> runs;
  for (int u = 0; u < static_cast<int>(layout_.units.size()); ++u) {
    if (!owned_[u]) continue;
    const ParamUnit& unit = layout_.units[u];
    const std::vector<ShardRange> ranges = layout_.ShardRanges(u, rank_);
    for (size_t bucket = 0; bucket < ranges.size(); ++bucket) {
      const ShardRange& range = ranges[bucket];
      for (const ParamRun& run : ParamRuns(unit, range.unit_begin, range.count)) {
        for (StateKind state : {StateKind::master, StateKind::moment1, StateKind::moment2}) {
          const Entry* entry = FindEntry(u, state, -1);
          if (!entry) continue;
          StateRun& added = runs.emplace_back();
          added.param = &unit.params[run.param].spec;
          added.state = state;
          added.begin = run.begin;
          added.count = run.count;
          if (entry->data)
            added.data = UnitTensor{entry->data, entry->buffer.whole}.Part(range, run.unit_begin, run.count);
          else
            added.file_offset =
                entry->file_offsets[bucket] + (run.unit_begin - range.unit_begin) * static_cast<int64_t>(sizeof(float));
        }
      }
    }
  }
  return runs;
}

}  // namespace ds
