#include <algorithm>

#include "runtime/plan/checks.h"
#include "runtime/plan/moves.h"
#include "runtime/plan/stages.h"

namespace ds {
namespace {

struct Need {
  Operand operand;
  int index;
  Access access;
  int64_t bytes;  // at least
};

class ShapeChecker {
 public:
  ShapeChecker(const ModelLayout& layout, const Plan& plan, Faults& faults)
      : layout_(layout),
        plan_(plan),
        faults_(faults),
        resident_(IndexResident(layout, plan)),
        parts_(PartsOf(layout, plan.options)),
        offloaded_(OffloadedUnits(layout, plan.options)) {}

  void Run() {
    CheckResident();
    for (size_t b = 0; b < plan_.buffers.size(); ++b) CheckBuffer(b);
    for (size_t a = 0; a < plan_.actions.size(); ++a) {
      if (!CheckIndices(a)) continue;
      CheckStream(a);
      CheckPending(a);
      CheckTiers(a);
      CheckWaits(a);
      CheckOperands(a);
    }
  }

 private:
  /// The state that the options ask for is there; CheckValues relies on it.
  void CheckResident() {
    auto require = [&](const std::vector<int>& buffers, bool wanted, StateKind state) {
      for (size_t i = 0; i < buffers.size(); ++i) {
        const int unit = state == StateKind::gradient ? layout_.slots[i].unit : static_cast<int>(i);
        const bool needed = wanted && parts_.units[unit];
        if ((buffers[i] >= 0) == needed) continue;
        faults_.Add((needed ? "missing: buffer " : "superfluous: buffer ") + layout_.units[unit].name + "/" +
                    NameOf(state));
      }
    };
    const PlanOptions& o = plan_.options;
    require(resident_.working, true, StateKind::working);
    require(resident_.master, o.training, StateKind::master);
    require(resident_.moment1, o.training && o.moments >= 1, StateKind::moment1);
    require(resident_.moment2, o.training && o.moments >= 2, StateKind::moment2);
    require(resident_.gradient, o.training, StateKind::gradient);
  }

  void CheckBuffer(size_t b) {
    const Buffer& buffer = plan_.buffers[b];
    if (buffer.kind == BufferKind::resident) {
      const int64_t numel = buffer.whole ? layout_.units[buffer.unit].numel : layout_.ShardNumel(buffer.unit);
      if (buffer.numel != numel || (buffer.alias_of < 0 && buffer.bytes != StateBytes(buffer.state, numel)))
        faults_.Add("buffer " + buffer.name + " is not the size of its unit's part");
      if (buffer.alias_of >= 0 && plan_.buffers[buffer.alias_of].alias_of >= 0)
        faults_.Add("buffer " + buffer.name + " is an alias of an alias");
      return;
    }
    if (buffer.kind == BufferKind::staging && (buffer.numel != PieceElements(buffer.unit, buffer.bucket) ||
                                               buffer.bytes != StateBytes(buffer.state, buffer.numel)))
      faults_.Add("buffer " + buffer.name + " is not the size of its bucket's piece");
    if (buffer.offset < 0 || buffer.bytes < 0 ||
        buffer.offset + buffer.bytes > plan_.arena_bytes[static_cast<int>(buffer.tier)])
      faults_.Add("buffer " + buffer.name + " lies outside its arena");
  }

  static bool In(int index, size_t size) { return index >= 0 && static_cast<size_t>(index) < size; }

  bool CheckIndices(size_t a) {
    const Action& action = plan_.actions[a];
    bool good = true;
    auto require = [&](bool holds, const char* what) {
      if (!holds) faults_.Add("action " + std::to_string(a) + " (" + NameOf(action.kind) + ") names no " + what);
      good = good && holds;
    };
    for (const Use& use : action.uses) require(In(use.buffer, plan_.buffers.size()), "buffer that exists");
    if (In(action.unit, layout_.units.size())) require(parts_.units[action.unit], "unit of its stage");
    if (action.kind == ActionKind::reduce && In(action.slot, layout_.slots.size()))
      require(parts_.slots[action.slot], "slot that its stage's segments write");
    switch (action.kind) {
      case ActionKind::forward:
      case ActionKind::recompute:
      case ActionKind::backward_input:
      case ActionKind::backward_weight:
        require(In(action.segment, layout_.segments.size()) && parts_.segments[action.segment], "segment of its stage");
        require(action.micro_batch >= 0 && action.micro_batch < plan_.options.micro_batches, "micro-batch");
        break;
      case ActionKind::reduce:
        require(In(action.slot, layout_.slots.size()) && layout_.slots[action.slot].unit == action.unit,
                "slot of its unit");
        require(action.micro_batch >= 0 && action.micro_batch < plan_.options.micro_batches, "micro-batch");
        [[fallthrough]];
      case ActionKind::gather:
      case ActionKind::squares:
        require(IsBucket(action.unit, action.bucket), "bucket of a unit");
        break;
      case ActionKind::sum_tied:
      case ActionKind::optimizer_step:
        require(action.bucket < 0 ? In(action.unit, layout_.units.size()) : IsBucket(action.unit, action.bucket),
                "unit, or bucket of one");
        break;
      case ActionKind::release:
        require(In(action.unit, layout_.units.size()), "unit");
        break;
      case ActionKind::fetch:
      case ActionKind::store:
        require(action.state == StateKind::none
                    ? In(action.segment, layout_.segments.size()) && action.micro_batch >= 0 &&
                          action.micro_batch < plan_.options.micro_batches
                    : IsBucket(action.unit, action.bucket),
                "bucket of a unit, and no segment and micro-batch");
        if (good && !(action.Find(Operand::from) && action.Find(Operand::to))) {
          faults_.At(a, "lacks a buffer to move from, or to");
          good = false;
        }
        break;
      case ActionKind::send:
      case ActionKind::receive:
        require(action.state == StateKind::none
                    ? In(action.segment, layout_.segments.size()) && action.micro_batch >= 0 &&
                          action.micro_batch < plan_.options.micro_batches
                    : action.state == StateKind::gradient && IsBucket(action.unit, action.bucket) &&
                          In(action.slot, layout_.slots.size()) && layout_.slots[action.slot].unit == action.unit,
                "bucket of a gradient slot, and no segment and micro-batch");
        require(action.peer >= 0 && action.peer < plan_.options.pipeline.stages &&
                    action.peer != plan_.options.pipeline.stage,
                "other stage");
        break;
      case ActionKind::norm:
        break;
    }
    return good;
  }

  bool IsBucket(int unit, int bucket) const {
    return In(unit, layout_.units.size()) && In(bucket, layout_.units[unit].buckets.size());
  }

  StreamKind StreamOf(const Action& action) const {
    switch (action.kind) {
      case ActionKind::gather:
        return StreamKind::gather;
      case ActionKind::reduce:
        return StreamKind::reduce;
      case ActionKind::fetch:
      case ActionKind::store: {
        const Tier from = plan_.buffers[action.Find(Operand::from)->buffer].tier,
                   to = plan_.buffers[action.Find(Operand::to)->buffer].tier;
        return StreamBetween(from, to);
      }
      case ActionKind::send:
      case ActionKind::receive: {
        if (action.state != StateKind::none) return StreamKind::tied;
        const Channel channel = ChannelOf(ShapeOf(plan_.options), BoundaryBehind(action.segment), action.gradient);
        return action.kind == ActionKind::send ? channel.send : channel.receive;
      }
      case ActionKind::squares:
        return StreamKind::host;
      case ActionKind::sum_tied:
      case ActionKind::optimizer_step:
        return offloaded_[action.unit] ? StreamKind::host : StreamKind::compute;
      default:
        return StreamKind::compute;
    }
  }

  /// The chunk that the segment is the last of; -1: of none but the model's last.
  int BoundaryBehind(int segment) const {
    const std::vector<Chunk> chunks = ChunksOf(layout_, plan_.options.pipeline);
    for (size_t c = 0; c + 1 < chunks.size(); ++c)
      if (chunks[c].end == segment + 1) return static_cast<int>(c);
    return -1;
  }

  void CheckStream(size_t a) {
    const Action& action = plan_.actions[a];
    if (IsMessage(action) && action.state == StateKind::none && BoundaryBehind(action.segment) < 0)
      return faults_.At(a, "carries what no other chunk needs");
    const StreamKind stream = StreamOf(plan_.actions[a]);
    if (plan_.actions[a].stream != stream)
      faults_.At(a, std::string("is on the ") + NameOf(plan_.actions[a].stream) + " stream, not on " + NameOf(stream));
  }

  /// Only what belongs to the host's updates can be left out.
  void CheckPending(size_t a) {
    const Action& action = plan_.actions[a];
    if (!action.pending) return;
    const Use* whole = action.Find(Operand::whole);
    const bool of_update =
        action.kind == ActionKind::optimizer_step || IsMove(action) ||
        (action.kind == ActionKind::gather && whole && plan_.buffers[whole->buffer].kind == BufferKind::resident);
    if (!DefersUpdates(plan_.options) || !of_update || action.unit < 0 || !offloaded_[action.unit])
      faults_.At(a, "cannot be of the step before: the host left nothing of it");
  }

  /// Operands lie where the action computes; a move's are neighbours.
  void CheckTiers(size_t a) {
    const Action& action = plan_.actions[a];
    if (IsMove(action)) {
      const Tier from = plan_.buffers[action.Find(Operand::from)->buffer].tier,
                 to = plan_.buffers[action.Find(Operand::to)->buffer].tier;
      const bool up = action.kind == ActionKind::fetch;
      if ((up ? to >= from : from >= to) || Towards(from, to) != to)
        faults_.At(a, std::string("cannot move from ") + NameOf(from) + " to " + NameOf(to));
      return;
    }
    const Tier tier = TierOf(action.stream);
    for (const Use& use : action.uses) {
      const Buffer& buffer = plan_.buffers[use.buffer];
      if (buffer.tier != tier && buffer.kind != BufferKind::sums)
        faults_.At(a, std::string("computes on the ") + NameOf(tier) + ", and " + buffer.name + " is on the " +
                          NameOf(buffer.tier));
    }
  }

  void CheckWaits(size_t a) {
    for (int wait : plan_.actions[a].waits) {
      if (wait < 0 || static_cast<size_t>(wait) >= a) {
        faults_.At(a, "waits for action " + std::to_string(wait) + ", which does not come before it");
      } else if (plan_.actions[wait].stream == plan_.actions[a].stream) {
        faults_.At(a, "waits for " + Describe(layout_, plan_, wait) + " of its own stream");
      } else if (!plan_.actions[wait].signals) {
        faults_.At(a, "waits for " + Describe(layout_, plan_, wait) + ", which does not signal");
      }
    }
  }

  int64_t StateBytes(StateKind state, int64_t numel) const {
    return numel * static_cast<int64_t>(SizeOf(DTypeOfState(state, plan_.options.compute)));
  }
  int64_t PieceElements(int unit, int bucket) const {
    return IsBucket(unit, bucket) ? layout_.units[unit].buckets[bucket].numel() / layout_.ranks : -1;
  }
  int64_t WholeBytes(StateKind state, int unit) const { return StateBytes(state, layout_.units[unit].numel); }
  int64_t ShardBytes(StateKind state, int unit) const { return StateBytes(state, layout_.ShardNumel(unit)); }

  std::vector<Need> ComputeNeeds(const Action& action) const {
    const size_t s = static_cast<size_t>(action.segment);
    const SegmentSpec& spec = layout_.segments[s];
    std::vector<Need> needs;
    auto need = [&](Operand operand, Access access, int64_t bytes) {
      if (bytes > 0) needs.push_back({operand, 0, access, bytes});
    };
    const bool backward = action.kind == ActionKind::backward_input || action.kind == ActionKind::backward_weight;
    const int64_t input = s > 0 ? LayOut(layout_.segments[s - 1].output) : 0;
    need(Operand::input, Access::read, input);
    need(Operand::saved, backward ? Access::read : Access::write, LayOut(spec.saved));
    if (backward) need(Operand::output_grad, Access::read, LayOut(spec.output));
    switch (action.kind) {
      case ActionKind::forward:
        need(Operand::output, Access::write, LayOut(spec.output));
        need(Operand::scratch, Access::write, spec.forward_scratch);
        break;
      case ActionKind::backward_input:
        need(Operand::input_grad, Access::write, input);
        need(Operand::carried, Access::write, LayOut(spec.carried));
        need(Operand::scratch, Access::write, spec.backward_input_scratch);
        break;
      case ActionKind::backward_weight:
        need(Operand::carried, Access::read, LayOut(spec.carried));
        need(Operand::scratch, Access::write, spec.backward_weight_scratch);
        break;
      default:
        break;
    }
    const int units = static_cast<int>(layout_.units_of[s].size());
    for (int i = 0; i < units; ++i) {
      const int unit = layout_.units_of[s][i];
      if (ReadsParameters(action))
        needs.push_back({Operand::params, i, Access::read, WholeBytes(StateKind::working, unit)});
      if (action.kind == ActionKind::backward_weight)
        needs.push_back({Operand::grads, i, action.accumulate ? Access::update : Access::write,
                         WholeBytes(StateKind::gradient, unit)});
    }
    return needs;
  }

  std::vector<Need> ReduceNeeds(const Action& action) const {
    const int64_t bytes = StateBytes(StateKind::gradient, layout_.units[action.unit].buckets[action.bucket].numel());
    std::vector<Need> needs = {{Operand::whole, 0, Access::read, WholeBytes(StateKind::gradient, action.unit)},
                               {Operand::shard, 0, action.accumulate ? Access::update : Access::write,
                                ShardBytes(StateKind::gradient, action.unit)}};
    const Use* shard = action.Find(Operand::shard);
    const bool direct = shard && !action.accumulate && !plan_.buffers[shard->buffer].whole;
    const int64_t workspace = ReduceWorkspaceOf(bytes, layout_.ranks, direct, plan_.options.device).bytes();
    if (workspace > 0) needs.push_back({Operand::workspace, 0, Access::write, workspace});
    return needs;
  }

  std::vector<Need> StepNeeds(const Action& action) const {
    std::vector<Need> needs = {
        {Operand::shard, FirstSlot(action.unit), Access::read, ShardBytes(StateKind::gradient, action.unit)}};
    auto state = [&](StateKind kind, int buffer, Access access) {
      if (buffer >= 0) needs.push_back({Operand::state, static_cast<int>(kind), access, 0});
    };
    state(StateKind::working, resident_.working[action.unit], Access::write);
    state(StateKind::master, resident_.master[action.unit], Access::update);
    state(StateKind::moment1, resident_.moment1[action.unit], Access::update);
    state(StateKind::moment2, resident_.moment2[action.unit], Access::update);
    return needs;
  }

  int64_t SumsBytes() const { return static_cast<int64_t>(layout_.units.size() * sizeof(double)); }

  int FirstSlot(int unit) const {
    for (size_t s = 0; s < layout_.slots.size(); ++s)
      if (layout_.slots[s].unit == unit) return static_cast<int>(s);
    return -1;
  }

  std::vector<Need> Needs(const Action& action) const {
    std::vector<Need> needs;
    switch (action.kind) {
      case ActionKind::gather:
        return {{Operand::shard, 0, Access::read, ShardBytes(StateKind::working, action.unit)},
                {Operand::whole, 0, Access::write, WholeBytes(StateKind::working, action.unit)}};
      case ActionKind::release:
        return {{Operand::whole, 0, Access::update, WholeBytes(StateKind::working, action.unit)}};
      case ActionKind::reduce:
        return ReduceNeeds(action);
      case ActionKind::sum_tied:
        for (int s = 0; s < static_cast<int>(layout_.slots.size()); ++s) {
          if (layout_.slots[s].unit == action.unit)
            needs.push_back({Operand::shard, s, needs.empty() ? Access::update : Access::read,
                             ShardBytes(StateKind::gradient, action.unit)});
        }
        return needs;
      case ActionKind::norm: {
        std::vector<bool> seen = offloaded_;
        if (std::find(seen.begin(), seen.end(), true) != seen.end())
          needs.push_back({Operand::sums, 0, Access::update, SumsBytes()});
        for (int s = 0; s < static_cast<int>(layout_.slots.size()); ++s) {
          const int unit = layout_.slots[s].unit;
          if (seen[unit] || !parts_.owned[unit]) continue;
          seen[unit] = true;
          needs.push_back({Operand::shard, s, Access::read, ShardBytes(StateKind::gradient, unit)});
        }
        return needs;
      }
      case ActionKind::optimizer_step:
        return StepNeeds(action);
      case ActionKind::squares: {
        const Use* sums =
            action.Find(Operand::sums);  // written by the first Squares of a step: CheckValues knows which
        return {{Operand::shard, FirstSlot(action.unit), Access::read, 0},
                {Operand::sums, 0, sums ? sums->access : Access::update, SumsBytes()}};
      }
      case ActionKind::send:
        return {{Operand::from, 0, Access::read, MessageBytes(action)}};
      case ActionKind::receive:
        return {{Operand::to, 0, Access::write, MessageBytes(action)}};
      case ActionKind::fetch:
      case ActionKind::store:
        return {{Operand::from, 0, Access::read, action.bytes}, {Operand::to, 0, Access::write, action.bytes}};
      default:
        return ComputeNeeds(action);
    }
  }

  int64_t MessageBytes(const Action& action) const {
    if (action.state == StateKind::none) return LayOut(layout_.segments[action.segment].output);
    return TiedMessageBytes(layout_, plan_.options, action.unit, action.bucket);
  }

  void CheckOperands(size_t a) {
    const Action& action = plan_.actions[a];
    if (IsMessage(action) && action.bytes != MessageBytes(action))
      faults_.At(a, "carries " + std::to_string(action.bytes) + " bytes, not " + std::to_string(MessageBytes(action)));
    const std::vector<Need> needs = Needs(action);
    for (const Need& need : needs) {
      const std::string name = std::string(NameOf(need.operand)) + "[" + std::to_string(need.index) + "]";
      const Use* use = action.Find(need.operand, need.index);
      if (!use) {
        faults_.At(a, "lacks its operand " + name);
        continue;
      }
      const Buffer& buffer = plan_.buffers[use->buffer];
      const bool piece = buffer.kind == BufferKind::staging && buffer.bucket == action.bucket;  // sized by CheckBuffer
      if (use->access != need.access)
        faults_.At(a, "uses " + name + " (" + buffer.name + ") with another access than it needs");
      if (buffer.bytes < need.bytes && buffer.alias_of < 0 && !piece)
        faults_.At(a, name + " needs " + std::to_string(need.bytes) + " bytes and " + buffer.name + " has " +
                          std::to_string(buffer.bytes));
      CheckIdentity(a, need, *use);
    }
    if (action.all && !WholeTarget(action)) faults_.At(a, "cannot gather what it reduced: its target is a shard");
    if (action.uses.size() > needs.size()) faults_.At(a, "has an operand that its kind does not take");
  }

  bool WholeTarget(const Action& action) const {
    const Use* shard = action.Find(Operand::shard);
    return shard && plan_.buffers[shard->buffer].whole;
  }

  /// Parameters, gradients and states are those of the action's unit or slot.
  void CheckIdentity(size_t a, const Need& need, const Use& use) {
    const Action& action = plan_.actions[a];
    const Buffer& buffer = plan_.buffers[use.buffer];
    int unit = action.unit, slot = -1;
    StateKind state = StateKind::none;
    switch (need.operand) {
      case Operand::params:
        unit = layout_.units_of[action.segment][need.index];
        state = StateKind::working;
        break;
      case Operand::grads:
        slot = layout_.slots_of[action.segment][need.index];
        break;
      case Operand::whole:
      case Operand::shard:
        if (action.kind == ActionKind::gather || action.kind == ActionKind::release)
          state = StateKind::working;
        else
          slot = action.kind == ActionKind::reduce ? action.slot : need.index;
        break;
      case Operand::state:
        state = static_cast<StateKind>(need.index);
        break;
      case Operand::from:
      case Operand::to:
        if (action.state == StateKind::none && IsMessage(action)) {
          if (buffer.kind != (action.gradient ? BufferKind::activation_grad : BufferKind::activation))
            faults_.At(a, "carries " + buffer.name + ", which is " + (action.gradient ? "no gradient of an " : "no ") +
                              "activation");
          return;
        }
        if (action.state == StateKind::none) {
          if (buffer.kind != BufferKind::activation && buffer.kind != BufferKind::saved)
            faults_.At(a, "moves " + buffer.name + ", which is no activation");
          return;
        }
        state = action.state;
        if (state == StateKind::gradient) slot = action.slot;
        break;
      default:
        return;
    }
    if (buffer.kind == BufferKind::staging && buffer.bucket != action.bucket)
      faults_.At(a, "uses " + buffer.name + ", a piece of another bucket");
    if (slot >= 0) unit = layout_.slots[slot].unit, state = StateKind::gradient;
    const bool whole =
        need.operand == Operand::params || need.operand == Operand::grads || need.operand == Operand::whole;
    if (buffer.unit != unit || buffer.state != state || (slot >= 0 && buffer.slot != slot) || (whole && !buffer.whole))
      faults_.At(a, std::string("its operand ") + NameOf(need.operand) + "[" + std::to_string(need.index) +
                        "] cannot be " + buffer.name);
  }

  const ModelLayout& layout_;
  const Plan& plan_;
  Faults& faults_;
  const ResidentIndex resident_;
  const StageParts parts_;
  const std::vector<bool> offloaded_;
};

}  // namespace

void CheckShape(const ModelLayout& layout, const Plan& plan, Faults& faults) {
  ShapeChecker(layout, plan, faults).Run();
}

}  // namespace ds
