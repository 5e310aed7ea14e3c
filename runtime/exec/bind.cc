#include "runtime/exec/bind.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/failpoint.h"
#include "runtime/plan/planner.h"
#include "runtime/plan/stages.h"

namespace ds {
namespace {

class Binder {
 public:
  explicit Binder(const BindContext& context) : c_(context), dtype_(context.plan.options.compute) {}

  std::vector<BoundAction> Run() {
    std::vector<BoundAction> bound;
    bound.reserve(c_.plan.actions.size());
    for (size_t i = 0; i < c_.plan.actions.size(); ++i) {
      try {
        bound.push_back(BindOne(c_.plan.actions[i]));
      } catch (const std::exception& error) {
        throw RuntimeError("plan of rank " + std::to_string(c_.plan.options.job_rank()) + ", action " +
                           Describe(c_.layout, c_.plan, i) + ": " + error.what());
      }
    }
    return bound;
  }

 private:
  BoundAction BindOne(const Action& action) {
    BoundAction bound;
    bound.action = &action;
    switch (action.kind) {
      case ActionKind::forward:
      case ActionKind::recompute:
      case ActionKind::backward_input:
      case ActionKind::backward_weight:
        BindCompute(action, bound);
        break;
      case ActionKind::gather:
        BindGather(action, bound);
        break;
      case ActionKind::reduce:
        BindReduce(action, bound);
        break;
      case ActionKind::sum_tied:
        BindSumTied(action, bound);
        break;
      case ActionKind::norm:
        BindNorm(action, bound);
        break;
      case ActionKind::optimizer_step:
        BindStep(action, bound);
        break;
      case ActionKind::squares:
        BindSquares(action, bound);
        break;
      case ActionKind::fetch:
      case ActionKind::store:
        bound.from = End(action, Operand::from);
        bound.to = End(action, Operand::to);
        break;
      case ActionKind::send:
        bound.message = Message(action, Operand::from);
        break;
      case ActionKind::receive:
        bound.message = Message(action, Operand::to);
        break;
      case ActionKind::release:
        break;
    }
    return bound;
  }

  const Buffer& Get(const Use& use) const { return c_.plan.buffers.at(use.buffer); }

  const Use& Need(const Action& action, Operand operand, int index = 0) const {
    const Use* use = action.Find(operand, index);
    if (!use) throw RuntimeError(std::string("no operand ") + NameOf(operand) + " " + std::to_string(index));
    return *use;
  }

  /// The elements of a resident, gathered, gradient or staging buffer, flat.
  Tensor Elements(const Buffer& buffer) const {
    if (buffer.kind == BufferKind::resident) return c_.store.Resident(buffer);
    const DType dtype = buffer.state == StateKind::working ? dtype_ : DType::f32;
    const Tensor bytes = c_.arena.Bytes(buffer);
    return Tensor(bytes.data, dtype, Shape{bytes.numel() / static_cast<int64_t>(SizeOf(dtype))}, bytes.device);
  }

  /// The same as a unit's tensor.
  UnitTensor Unit(const Buffer& buffer) const {
    if (buffer.kind == BufferKind::staging)
      return UnitTensor{Elements(buffer), false, RangeOf(buffer.unit, buffer.bucket).shard_begin};
    return UnitTensor{Elements(buffer), IsWhole(buffer)};
  }

  MoveEnd End(const Action& action, Operand operand) const {
    const Buffer& buffer = Get(Need(action, operand));
    MoveEnd end;
    if (buffer.tier == Tier::file) {
      end.file_offset = buffer.kind == BufferKind::resident ? c_.store.FileOffset(buffer, action.bucket)
                                                            : c_.arena.FileOffset(buffer);
    } else {
      const Tensor data = buffer.kind == BufferKind::resident ? Unit(buffer).Part(RangeOf(action.unit, action.bucket))
                                                              : c_.arena.Bytes(buffer);
      end.memory = Tensor(data.data, DType::u8, Shape{data.bytes()}, data.device);
    }
    return end;
  }

  Tensor Message(const Action& action, Operand operand) const {
    if (action.state == StateKind::none) return Activation(action, operand);
    const Buffer& buffer = Get(Need(action, operand));
    return OptimizerStateIsWhole(action.unit) ? OfBucket(action, Elements(buffer))
                                              : Unit(buffer).Part(OwnRange(action));
  }

  /// Whether elements are addressed by their place in the unit: an fp32 master is where the working copy is that it is
  /// a part of.
  bool IsWhole(const Buffer& buffer) const {
    return buffer.alias_of >= 0 ? c_.plan.buffers[buffer.alias_of].whole : buffer.whole;
  }

  Tensor Activation(const Action& action, Operand operand) const {
    const Use* use = action.Find(operand);
    if (!use) return {};
    const Tensor bytes = c_.arena.Bytes(Get(*use));
    const Shape shape{c_.shape.samples, c_.shape.tokens, c_.hidden};
    if (bytes.numel() < shape.numel() * static_cast<int64_t>(SizeOf(dtype_)))
      throw RuntimeError(Get(*use).name + " is too small for " + shape.str());
    return Tensor(bytes.data, dtype_, shape, bytes.device);
  }

  std::vector<Tensor> LaidOut(const Action& action, Operand operand, const std::vector<TensorSpec>& specs) const {
    const Use* use = action.Find(operand);
    if (!use) return {};
    const Buffer& buffer = Get(*use);
    std::vector<int64_t> offsets;
    const int64_t needed = LayOut(specs, &offsets);
    const Tensor bytes = c_.arena.Bytes(buffer);
    std::vector<Tensor> tensors;
    for (size_t i = 0; i < specs.size(); ++i) {
      // A forward-only plan may leave out the last tensors, which only a backward pass reads.
      if (offsets[i] + specs[i].shape.numel() * static_cast<int64_t>(SizeOf(specs[i].dtype)) > bytes.numel()) {
        if (c_.plan.options.training)
          throw RuntimeError(buffer.name + " has " + std::to_string(bytes.numel()) + " bytes, needs " +
                             std::to_string(needed));
        tensors.emplace_back();
        continue;
      }
      tensors.emplace_back(static_cast<char*>(bytes.data) + offsets[i], specs[i].dtype, specs[i].shape, bytes.device);
    }
    return tensors;
  }

  /// One tensor for each parameter of the segment, cut from the units that `operand` names.
  std::vector<Tensor> Params(const Action& action, Operand operand) const {
    const std::vector<int>& units = c_.layout.units_of[action.segment];
    if (!action.Find(operand, 0)) return {};
    std::vector<Tensor> tensors;
    for (const ParamRef& ref : c_.layout.params[action.segment]) {
      const int index = static_cast<int>(std::find(units.begin(), units.end(), ref.unit) - units.begin());
      const FlatParam& param = c_.layout.units[ref.unit].params[ref.param];
      const Tensor unit = Elements(Get(Need(action, operand, index)));
      tensors.push_back(unit.Flat(param.offset, param.numel()).View(param.spec.shape));
    }
    return tensors;
  }

  void BindCompute(const Action& action, BoundAction& bound) const {
    const SegmentSpec& spec = c_.layout.segments[action.segment];
    SegmentIo& io = bound.io;
    io.x = Activation(action, Operand::input);
    io.y = Activation(action, Operand::output);
    io.dy = Activation(action, Operand::output_grad);
    io.dx = Activation(action, Operand::input_grad);
    io.params = Params(action, Operand::params);
    io.grads = Params(action, Operand::grads);
    io.accumulate = action.accumulate;
    io.saved = LaidOut(action, Operand::saved, spec.saved);
    io.carried = LaidOut(action, Operand::carried, spec.carried);
    if (const Use* use = action.Find(Operand::scratch)) io.scratch = c_.arena.Bytes(Get(*use));
    if (action.kind != ActionKind::backward_weight || action.accumulate) return;
    const std::vector<int>& units = c_.layout.units_of[action.segment];
    for (size_t i = 0; i < units.size(); ++i) {
      const Buffer& buffer = Get(Need(action, Operand::grads, static_cast<int>(i)));
      if (buffer.kind == BufferKind::resident) continue;  // zeroed when it was allocated; nothing else writes there
      for (const ShardRange& gap : Gaps(c_.layout.units[units[i]]))
        bound.clear.push_back(Elements(buffer).Flat(gap.unit_begin, gap.count));
    }
  }

  ShardRange RangeOf(int unit, int bucket) const {
    return c_.layout.ShardRanges(unit, c_.plan.options.rank).at(bucket);
  }
  ShardRange OwnRange(const Action& action) const { return RangeOf(action.unit, action.bucket); }
  Tensor OfBucket(const Action& action, const Tensor& whole) const {
    const Bucket& bucket = c_.layout.units[action.unit].buckets.at(action.bucket);
    return whole.Flat(bucket.begin, bucket.numel());
  }

  void BindGather(const Action& action, BoundAction& bound) const {
    bound.shard = Unit(Get(Need(action, Operand::shard))).Part(OwnRange(action));
    bound.whole = OfBucket(action, Elements(Get(Need(action, Operand::whole))));
  }

  void BindReduce(const Action& action, BoundAction& bound) const {
    const Buffer& destination = Get(Need(action, Operand::shard));
    const ShardRange own = OwnRange(action);
    bound.whole = OfBucket(action, Elements(Get(Need(action, Operand::whole))));
    bound.shard = Unit(destination).Part(own);
    if (action.all) bound.all = OfBucket(action, Elements(destination));
    const int ranks = c_.plan.options.ranks;
    if (ranks == 1) return;
    const bool direct = !IsWhole(destination) && !action.accumulate;
    const ReduceWorkspace places = ReduceWorkspaceOf(bound.whole.bytes(), ranks, direct, c_.plan.options.device);
    if (places.bytes() == 0) return;  // NCCL has memory of its own
    const Tensor workspace = c_.arena.Bytes(Get(Need(action, Operand::workspace)));
    bound.workspace = workspace.Flat(0, places.communicator_bytes);
    if (!direct)
      bound.staging = Tensor(workspace.Flat(places.piece_offset, places.piece_bytes).data, DType::f32, Shape{own.count},
                             workspace.device);
  }

  /// ZeRO-0: every rank steps the whole unit.
  bool OptimizerStateIsWhole(int unit) const {
    for (const Buffer& buffer : c_.plan.buffers)
      if (buffer.state == StateKind::master && buffer.unit == unit) return buffer.whole;
    throw RuntimeError("unit " + c_.layout.units[unit].name + " has no master");
  }

  void BindSumTied(const Action& action, BoundAction& bound) const {
    std::vector<UnitTensor> slots;
    for (const Use& use : action.uses)
      if (use.operand == Operand::shard) slots.push_back(Unit(Get(use)));
    if (slots.size() != 2) throw RuntimeError(std::to_string(slots.size()) + " gradients, expected 2");
    if (action.bucket >= 0) {
      bound.sums.emplace_back(slots[0].Part(OwnRange(action)), slots[1].Part(OwnRange(action)));
      return;
    }
    if (OptimizerStateIsWhole(action.unit)) {
      bound.sums.emplace_back(slots[0].data, slots[1].data);
      return;
    }
    for (const ShardRange& range : c_.layout.ShardRanges(action.unit, c_.plan.options.rank))
      bound.sums.emplace_back(slots[0].Part(range), slots[1].Part(range));
  }

  void BindNorm(const Action& action, BoundAction& bound) const {
    for (const Use& use : action.uses) {
      if (use.operand == Operand::sums) bound.squares = Sums(Get(use));
      if (use.operand != Operand::shard) continue;
      const Buffer& buffer = Get(use);
      bound.gradients.push_back(UnitGradient{buffer.unit, Unit(buffer)});
    }
    std::sort(bound.gradients.begin(), bound.gradients.end(),
              [](const UnitGradient& a, const UnitGradient& b) { return a.unit < b.unit; });
    const std::vector<bool> owned = PartsOf(c_.layout, c_.plan.options).owned;
    const auto units = std::count(owned.begin(), owned.end(), true);
    if (!bound.squares && static_cast<std::ptrdiff_t>(bound.gradients.size()) != units)
      throw RuntimeError(std::to_string(bound.gradients.size()) + " gradients for " + std::to_string(units) + " units");
  }

  Tensor Sums(const Buffer& buffer) const {
    const Tensor bytes = c_.arena.Bytes(buffer);
    return Tensor(bytes.data, DType::f64, Shape{static_cast<int64_t>(c_.layout.units.size())}, bytes.device);
  }

  void BindSquares(const Action& action, BoundAction& bound) const {
    const Use& sums = Need(action, Operand::sums);
    bound.squares = Sums(Get(sums));
    bound.clears_squares = sums.access == Access::write;
    for (const Use& use : action.uses)
      if (use.operand == Operand::shard) bound.shard = Unit(Get(use)).Part(OwnRange(action));
  }

  void BindStep(const Action& action, BoundAction& bound) const {
    for (const Use& use : action.uses) {
      const Buffer& buffer = Get(use);
      if (use.operand == Operand::shard) bound.state.gradient = Unit(buffer);
      if (use.operand != Operand::state) continue;
      switch (buffer.state) {
        case StateKind::working:
          bound.state.working = Unit(buffer);
          break;
        case StateKind::master:
          bound.state.master = Unit(buffer);
          break;
        case StateKind::moment1:
          bound.state.moment1 = Unit(buffer);
          break;
        case StateKind::moment2:
          bound.state.moment2 = Unit(buffer);
          break;
        default:
          throw RuntimeError(buffer.name + " is no optimizer state");
      }
    }
    UnitState& state = bound.state;
    if (!state.gradient || !state.master) throw RuntimeError("no gradient or no master");
    if (state.working.data.data == state.master.data.data) state.working = {};
    bound.step_whole = OptimizerStateIsWhole(action.unit);
  }

  const BindContext& c_;
  const DType dtype_;
};

}  // namespace

Arena::Arena(const std::vector<const Plan*>& plans, Gpu* gpu, FileTier* files) {
  for (int tier = 0; tier < kTiers; ++tier) {
    int64_t bytes = 0;
    for (const Plan* plan : plans) bytes = std::max(bytes, plan->arena_bytes[tier]);
    if (static_cast<Tier>(tier) == Tier::file) {
      if (bytes > 0 && !files) throw RuntimeError("a plan needs files, and there are none");
      if (bytes > 0) file_offset_ = files->Allocate(bytes);
      continue;
    }
    Gpu* const of_tier = static_cast<Tier>(tier) == Tier::device ? gpu : nullptr;
    memory_[tier] = static_cast<Tier>(tier) == Tier::device ? Memory(bytes, gpu) : Memory::OfHost(bytes, gpu);
    // For tests: what is read before it is written is NaN.
    if (bytes == 0 || !FailpointNumber("arena")) continue;
    const Tensor all = memory_[tier].Bytes(0, bytes);
    if (of_tier) {
      gpu->Set(all.data, 0xFF, bytes, nullptr);
      gpu->Synchronize(nullptr);
    } else {
      std::memset(all.data, 0xFF, static_cast<size_t>(bytes));
    }
  }
}

Tensor Arena::Bytes(const Buffer& buffer) const {
  return memory_[static_cast<int>(buffer.tier)].Bytes(buffer.offset, buffer.bytes);
}

std::vector<BoundAction> Bind(const BindContext& context) { return Binder(context).Run(); }

}  // namespace ds
