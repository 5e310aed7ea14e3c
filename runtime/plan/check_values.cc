// Runs the plan on symbols: each buffer holds the name of a value instead of the value. CheckOrder has proved that the
// list order is the order that every stream keeps between conflicting uses, so one walk over the list is enough.
#include <algorithm>

#include "runtime/plan/check_pieces.h"
#include "runtime/plan/checks.h"
#include "runtime/plan/passes.h"
#include "runtime/plan/stages.h"

namespace ds {
namespace {

/// A tensor of a segment's pass over a micro-batch.
struct Value {
  BufferKind kind = BufferKind::scratch;  // scratch: nothing of use
  int segment = -1, micro_batch = -1;
  bool operator==(const Value&) const = default;
};

/// What a gradient buffer holds.
struct Gradient {
  int first = -1, count = 0;  // micro-batches [first, first + count) of this rank were added up in it
  struct Reduced {
    int count = 0;            // micro-batches [0, count), summed over the ranks; 0: not reduced
    bool everywhere = false;  // all of the bucket, not this rank's piece alone
  };
  std::vector<Reduced> buckets;
};

/// What a rank knows of a unit's parameters after its step.
enum class Stepped : uint8_t { no, own_piece, all };

class ValueChecker {
 public:
  ValueChecker(const ModelLayout& layout, const Plan& plan, Faults& faults)
      : layout_(layout),
        plan_(plan),
        faults_(faults),
        resident_(IndexResident(layout, plan)),
        values_(plan.buffers.size()),
        gradients_(plan.buffers.size()),
        gathered_(plan.buffers.size()),
        parts_(PartsOf(layout, plan.options)),
        offloaded_(OffloadedUnits(layout, plan.options)),
        deferred_(DefersUpdates(plan.options) ? offloaded_ : std::vector<bool>(layout.units.size(), false)),
        of_update_(plan.buffers.size(), false),
        pieces_(layout, plan, resident_) {
    for (const ParamUnit& unit : layout.units) {
      stepped_.emplace_back(unit.buckets.size(), Stepped::no);
      summed_.emplace_back(unit.buckets.size(), false);
      squared_.push_back(0);
    }
    for (size_t b = 0; b < plan.buffers.size(); ++b) {
      const Buffer& buffer = plan.buffers[b];
      if (buffer.unit < 0) continue;
      if (buffer.state == StateKind::gradient) gradients_[b].buckets.resize(layout.units[buffer.unit].buckets.size());
      if (buffer.kind == BufferKind::gathered) gathered_[b].assign(layout.units[buffer.unit].buckets.size(), false);
    }
    for (size_t u = 0; u < layout.units.size(); ++u)
      if (deferred_[u]) LeftByStepBefore(static_cast<int>(u));
  }

  void Run() {
    for (at_ = 0; at_ < plan_.actions.size(); ++at_) {
      const Action& action = plan_.actions[at_];
      if (IsMove(action)) {
        for (const Use& use : action.uses) FollowPending(action, use);
        Move(action);
        continue;
      }
      for (const Use& use : action.uses) Fault(pieces_.BeforeUse(use, action.bucket));
      for (const Use& use : action.uses) FollowPending(action, use);
      Do(action);
    }
    for (size_t u = 0; u < layout_.units.size(); ++u)
      if (deferred_[u] && !plan_.options.updates_only) CheckLeftToNext(static_cast<int>(u));
    for (const std::string& fault : pieces_.AtTheEnd()) faults_.Add(fault);
    for (size_t b = 0; b < plan_.buffers.size(); ++b)
      if (std::find(gathered_[b].begin(), gathered_[b].end(), true) != gathered_[b].end())
        faults_.Add("missing: Release " + layout_.units[plan_.buffers[b].unit].name + " (" + plan_.buffers[b].name +
                    " is never released)");
  }

 private:
  void Do(const Action& action) {
    switch (action.kind) {
      case ActionKind::forward:
      case ActionKind::recompute:
      case ActionKind::backward_input:
      case ActionKind::backward_weight:
        return Compute(action);
      case ActionKind::gather:
        return Gather(action);
      case ActionKind::release:
        return Release(action);
      case ActionKind::reduce:
        return Reduce(action);
      case ActionKind::sum_tied:
        return SumTied(action);
      case ActionKind::norm:
        return Norm(action);
      case ActionKind::optimizer_step:
        return Step(action);
      case ActionKind::squares:
        return Squares(action);
      case ActionKind::send:
        return Send(action);
      case ActionKind::receive:
        return Receive(action);
      case ActionKind::fetch:
      case ActionKind::store:
        return Move(action);
    }
  }

  // Pending updates ------------------------------------------------------------------------------------------------

  int FirstSlot(int unit) const {
    int slot = 0;
    while (layout_.slots[slot].unit != unit) ++slot;
    return slot;
  }
  std::vector<Gradient::Reduced>& ReducedOf(int unit) {
    return gradients_[resident_.gradient[FirstSlot(unit)]].buckets;
  }

  /// What a run of the plan begins with: the gradient of the step before, reduced and, of two, summed.
  void LeftByStepBefore(int unit) {
    for (Gradient::Reduced& bucket : ReducedOf(unit)) bucket = {static_cast<int>(plan_.options.micro_batches), true};
    summed_[unit].assign(summed_[unit].size(), true);
  }

  /// And what it must end with, so that the next may.
  void CheckLeftToNext(int unit) {
    const std::vector<Gradient::Reduced>& buckets = ReducedOf(unit);
    for (size_t b = 0; b < buckets.size(); ++b)
      if (buckets[b].count != plan_.options.micro_batches || (Tied(unit) && !summed_[unit][b]))
        faults_.Add("missing: the gradient of " + layout_.units[unit].name + " bucket " + std::to_string(b) +
                    ", which the next step's OptimizerStep reads");
  }

  /// What may be left out leaves nothing for what may not, and the other way round.
  void FollowPending(const Action& action, const Use& use) {
    if (plan_.buffers[use.buffer].kind != BufferKind::staging) return;
    if (use.access != Access::write && of_update_[use.buffer] != action.pending)
      Fault("reads " + NameOfBuffer(use.buffer) + ", which is there " +
            (action.pending ? "of this step" : "only where the step before left an update"));
    if (use.access != Access::read) of_update_[use.buffer] = action.pending;
  }

  void Fault(const std::string& text) {
    if (!text.empty()) faults_.At(at_, text);
  }
  /// The buffer that a staging buffer is a piece of; others are their own.
  int Home(const Use* use) const { return pieces_.Home(use->buffer); }

  void Move(const Action& action) {
    const int from = action.Find(Operand::from)->buffer, to = action.Find(Operand::to)->buffer;
    if (action.state != StateKind::none) return Fault(pieces_.Move(from, to, action.bucket));
    const Value& value = values_[from];
    if (value.segment != action.segment || value.micro_batch != action.micro_batch ||
        value.kind != plan_.buffers[to].kind)
      Fault("its source " + NameOfBuffer(from) + " does not hold what " + layout_.segments[action.segment].name +
            " mb" + std::to_string(action.micro_batch) + " wrote");
    values_[to] = value;
  }
  const std::string& NameOfBuffer(int buffer) const { return plan_.buffers[buffer].name; }

  // Messages -------------------------------------------------------------------------------------------------------

  static Value Carried(const Action& action) {
    return {action.gradient ? BufferKind::activation_grad : BufferKind::activation, action.segment, action.micro_batch};
  }
  void Send(const Action& action) {
    const Use* from = action.Find(Operand::from);
    if (action.state != StateKind::none) return ReadReduced(*from, action.bucket);
    Read(action, Operand::from, Carried(action));
  }
  /// A tied unit's gradient comes whole where the step needs all of it.
  void Receive(const Action& action) {
    const Use* to = action.Find(Operand::to);
    if (action.state == StateKind::none) return Write(action, Operand::to, Carried(action));
    Gradient::Reduced& reduced = gradients_[Home(to)].buckets[action.bucket];
    if (reduced.count > 0) Fault("replaces " + NameOfBuffer(Home(to)) + ", which is reduced");
    reduced = {static_cast<int>(plan_.options.micro_batches), true};
  }

  // Compute actions ------------------------------------------------------------------------------------------------

  void Compute(const Action& action) {
    const int s = action.segment, m = action.micro_batch;
    Read(action, Operand::input, {BufferKind::activation, s - 1, m});
    Read(action, Operand::output_grad, {BufferKind::activation_grad, s, m});
    if (action.kind == ActionKind::forward || action.kind == ActionKind::recompute) {
      Write(action, Operand::saved, {BufferKind::saved, s, m});
    } else {
      Read(action, Operand::saved, {BufferKind::saved, s, m});
    }
    if (action.kind == ActionKind::backward_weight) Read(action, Operand::carried, {BufferKind::carried, s, m});
    if (action.kind == ActionKind::backward_input) Write(action, Operand::carried, {BufferKind::carried, s, m});
    Write(action, Operand::output, {BufferKind::activation, s, m});
    Write(action, Operand::input_grad, {BufferKind::activation_grad, s - 1, m});
    for (const Use& use : action.uses) {
      if (use.operand == Operand::params) ReadParams(use.buffer);
      if (use.operand == Operand::grads) WriteGradient(action, use.buffer);
    }
  }

  void Read(const Action& action, Operand operand, const Value& wanted) {
    const Use* use = action.Find(operand);
    if (!use || values_[use->buffer] == wanted) return;
    Fault(std::string("its ") + NameOf(operand) + " " + NameOfBuffer(use->buffer) + " does not hold the " +
          NameOf(wanted.kind) + " of " + layout_.segments[wanted.segment].name + " mb" +
          std::to_string(wanted.micro_batch));
  }

  void Write(const Action& action, Operand operand, const Value& value) {
    if (const Use* use = action.Find(operand)) values_[use->buffer] = value;
  }

  void ReadParams(int buffer) {
    const Buffer& b = plan_.buffers[buffer];
    const std::vector<Stepped>& stepped = stepped_[b.unit];
    for (size_t i = 0; deferred_[b.unit] && i < stepped.size(); ++i)
      if (stepped[i] != Stepped::all)
        Fault("reads parameters of " + layout_.units[b.unit].name + " before " +
              (stepped[i] == Stepped::no ? "OptimizerStep" : "Gather") + " of bucket " + std::to_string(i) +
              " of the step before");
    if (!deferred_[b.unit] &&
        std::any_of(stepped.begin(), stepped.end(), [](Stepped bucket) { return bucket != Stepped::no; }))
      Fault("reads parameters of " + layout_.units[b.unit].name + " after their step");
    if (b.kind == BufferKind::resident) return;
    for (size_t i = 0; i < gathered_[buffer].size(); ++i)
      if (!gathered_[buffer][i])
        Fault("reads " + b.name + " without a Gather " + layout_.units[b.unit].name + " bucket " + std::to_string(i));
  }

  void WriteGradient(const Action& action, int buffer) {
    Gradient& gradient = gradients_[buffer];
    for (const Gradient::Reduced& bucket : gradient.buckets) {
      if (bucket.count == 0) continue;
      Fault("writes " + NameOfBuffer(buffer) + " after it was reduced");
      break;
    }
    if (!action.accumulate) {
      gradient.first = action.micro_batch;
      gradient.count = 1;
      return;
    }
    if (gradient.count == 0 || gradient.first + gradient.count != action.micro_batch)
      Fault("adds to " + NameOfBuffer(buffer) + " out of the order of micro-batches");
    ++gradient.count;
  }

  // ZeRO -----------------------------------------------------------------------------------------------------------

  void Gather(const Action& action) {
    const int source = Home(action.Find(Operand::shard)), target = action.Find(Operand::whole)->buffer;
    Stepped& stepped = stepped_[action.unit][action.bucket];
    if (plan_.buffers[target].kind == BufferKind::resident) {
      if (source != target || stepped == Stepped::no)
        Fault("gathers parameters before OptimizerStep " + layout_.units[action.unit].name);
      stepped = Stepped::all;
      return;
    }
    if (source != resident_.working[action.unit])
      Fault("does not gather from " + layout_.units[action.unit].name + "/working");
    if (deferred_[action.unit] && stepped == Stepped::no)
      Fault("gathers parameters before OptimizerStep " + layout_.units[action.unit].name + " bucket " +
            std::to_string(action.bucket) + " of the step before");
    if (!deferred_[action.unit] && stepped != Stepped::no)
      Fault("gathers parameters after their step, which no segment reads");
    if (gathered_[target][action.bucket]) Fault("this bucket of " + NameOfBuffer(target) + " was gathered already");
    gathered_[target][action.bucket] = true;
  }

  void Release(const Action& action) {
    const int buffer = action.Find(Operand::whole)->buffer;
    std::vector<bool>& buckets = gathered_[buffer];
    for (size_t i = 0; i < buckets.size(); ++i)
      if (!buckets[i]) Fault("releases " + NameOfBuffer(buffer) + " without a Gather of bucket " + std::to_string(i));
    std::fill(buckets.begin(), buckets.end(), false);
  }

  void Reduce(const Action& action) {
    const int source = action.Find(Operand::whole)->buffer, target = Home(action.Find(Operand::shard));
    const Gradient& from = gradients_[source];
    Gradient::Reduced& to = gradients_[target].buckets[action.bucket];
    if (from.count == 0) return Fault("reduces " + NameOfBuffer(source) + ", which no BackwardWeight wrote");
    if (from.first + from.count != action.micro_batch + 1)
      Fault("reduces " + NameOfBuffer(source) + " before BackwardWeight of its micro-batch");
    if (source == target && to.count > 0) return Fault("reduces what was reduced already");
    const int wanted = action.accumulate ? from.first : 0;
    if (from.first != wanted || to.count != wanted || (action.accumulate && wanted == 0))
      Fault("adds micro-batch " + std::to_string(from.first) + " to " + NameOfBuffer(target) + ", which holds " +
            std::to_string(to.count) + " of them: out of the order of micro-batches");
    to.count = from.first + from.count;
    to.everywhere = action.all || layout_.ranks == 1;
  }

  // The step -------------------------------------------------------------------------------------------------------

  bool StepsWhole(int unit) const { return plan_.buffers[resident_.master[unit]].whole; }

  /// Calls f(bucket) for the bucket that an action is of, or for all of its unit's.
  template <class F>
  void EachBucket(int unit, int bucket, F f) const {
    const int buckets = static_cast<int>(layout_.units[unit].buckets.size());
    for (int b = bucket < 0 ? 0 : bucket; b < (bucket < 0 ? buckets : bucket + 1); ++b) f(static_cast<size_t>(b));
  }

  /// Whether the slot's gradient is reduced (that bucket of it), everywhere when the unit's step needs all of it.
  void ReadReduced(const Use& use, int bucket) {
    const int buffer = Home(&use);
    const Buffer& b = plan_.buffers[buffer];
    EachBucket(b.unit, bucket, [&](size_t i) {
      const Gradient::Reduced& reduced = gradients_[buffer].buckets[i];
      const bool complete = reduced.count == plan_.options.micro_batches && (reduced.everywhere || !StepsWhole(b.unit));
      if (!complete) Fault("reads " + b.name + " before Reduce of bucket " + std::to_string(i) + " is complete");
    });
  }

  bool Tied(int unit) const {
    return std::count_if(layout_.slots.begin(), layout_.slots.end(),
                         [&](const GradientSlot& slot) { return slot.unit == unit; }) > 1;
  }
  void NeedSummed(int unit, int bucket) {
    if (!Tied(unit)) return;
    bool all = true;
    EachBucket(unit, bucket, [&](size_t b) { all = all && summed_[unit][b]; });
    if (!all)
      Fault("comes before SumTied " + layout_.units[unit].name +
            (bucket < 0 ? std::string() : " bucket " + std::to_string(bucket)));
  }

  void SumTied(const Action& action) {
    for (const Use& use : action.uses) ReadReduced(use, action.bucket);
    EachBucket(action.unit, action.bucket, [&](size_t b) {
      if (summed_[action.unit][b]) Fault("adds a gradient that was added already");
      summed_[action.unit][b] = true;
    });
  }

  /// Sums are the same under every placement only if a unit's buckets come in their order.
  void Squares(const Action& action) {
    const Use* sums = action.Find(Operand::sums);
    if ((sums->access == Access::write) != !sums_begun_)
      Fault(sums_begun_ ? "drops the sums of Squares before it" : "adds to sums that no Squares set to zero");
    sums_begun_ = true;
    for (const Use& use : action.uses)
      if (use.operand == Operand::shard) ReadReduced(use, action.bucket);
    NeedSummed(action.unit, action.bucket);
    if (squared_[action.unit]++ != action.bucket)
      Fault("adds up the squares of " + layout_.units[action.unit].name + " out of the order of its buckets");
  }

  void Norm(const Action& action) {
    for (const Use& use : action.uses)
      if (use.operand == Operand::shard) ReadReduced(use, -1);
    for (size_t u = 0; u < layout_.units.size(); ++u) {
      if (!parts_.owned[u]) continue;
      if (!offloaded_[u]) NeedSummed(static_cast<int>(u), -1);
      const size_t buckets = layout_.units[u].buckets.size();
      if (offloaded_[u] && static_cast<size_t>(squared_[u]) != buckets)
        Fault("comes before Squares " + layout_.units[u].name + " bucket " + std::to_string(squared_[u]));
    }
    norm_done_ = true;
  }

  void Step(const Action& action) {
    const bool early = offloaded_[action.unit] && plan_.options.placement.steps_early;
    if (!early && !action.pending && !norm_done_) Fault("comes before Norm");
    if (early && squared_[action.unit] <= action.bucket)
      Fault("comes before Squares " + layout_.units[action.unit].name + " bucket " + std::to_string(action.bucket));
    for (const Use& use : action.uses)
      if (use.operand == Operand::shard) ReadReduced(use, action.bucket);
    NeedSummed(action.unit, action.bucket);
    const bool all = StepsWhole(action.unit) || !plan_.buffers[resident_.working[action.unit]].whole;
    EachBucket(action.unit, action.bucket, [&](size_t b) {
      Stepped& bucket = stepped_[action.unit][b];
      if (bucket != Stepped::no) Fault("steps what was stepped already");
      bucket = all ? Stepped::all : Stepped::own_piece;
      if (!action.pending) return;  // the gradient is used up, and this step's may come
      ReducedOf(action.unit)[b] = {};
      summed_[action.unit][b] = false;
    });
  }

  const ModelLayout& layout_;
  const Plan& plan_;
  Faults& faults_;
  const ResidentIndex resident_;
  size_t at_ = 0;
  std::vector<Value> values_;                  // of a buffer
  std::vector<Gradient> gradients_;            // of a gradient buffer
  std::vector<std::vector<bool>> gathered_;    // of a gathered buffer: its buckets
  std::vector<std::vector<Stepped>> stepped_;  // of a unit: its buckets
  const StageParts parts_;
  const std::vector<bool> offloaded_;      // of a unit
  const std::vector<bool> deferred_;       // of a unit: its update is pending when a run begins
  std::vector<bool> of_update_;            // of a staging buffer: a pending action wrote it
  std::vector<std::vector<bool>> summed_;  // of a unit: its buckets
  std::vector<int> squared_;               // of a unit: buckets [0, n) are among the sums
  Pieces pieces_;
  bool norm_done_ = false, sums_begun_ = false;
};

}  // namespace

void CheckValues(const ModelLayout& layout, const Plan& plan, Faults& faults) {
  ValueChecker(layout, plan, faults).Run();
}

}  // namespace ds
