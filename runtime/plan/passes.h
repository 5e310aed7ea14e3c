// The passes of the planner, each in a file of its own and each over the whole plan. planner.h says what each adds; the
// order of the calls is BuildPlan's. Private to runtime/plan and its tests.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "runtime/plan/plan.h"

namespace ds {

void OrderCompute(const ModelLayout& layout, Plan& plan);
void AddRecompute(const ModelLayout& layout, Plan& plan);
void PlaceState(const ModelLayout& layout, Plan& plan);        // residency.cc
void GatherParameters(const ModelLayout& layout, Plan& plan);  // gather.cc
void ReduceGradients(const ModelLayout& layout, Plan& plan);   // reduce.cc
void ExchangeTied(const ModelLayout& layout, Plan& plan);      // exchange_tied.cc
void StepOptimizer(const ModelLayout& layout, Plan& plan);     // step.cc
void MoveActivations(Plan& plan);                              // move_activations.cc
void MoveState(const ModelLayout& layout, Plan& plan);         // move_state.cc
void PlaceArena(Plan& plan);                                   // arena.cc
void OrderStreams(Plan& plan);                                 // streams.cc

/// Adds a buffer, returns its index.
inline int AddBuffer(Plan& plan, Buffer buffer) {
  plan.buffers.push_back(std::move(buffer));
  return static_cast<int>(plan.buffers.size()) - 1;
}

/// Adds a buffer of `bytes` for one purpose of an action, and its use; nothing when bytes is 0.
inline void AddOwnBuffer(Plan& plan, Action& action, Operand operand, BufferKind kind, std::string name,
                         int64_t bytes) {
  if (bytes == 0) return;
  Buffer buffer;
  buffer.name = std::move(name);
  buffer.kind = kind;
  buffer.bytes = bytes;
  action.uses.push_back({operand, 0, AddBuffer(plan, std::move(buffer)), Access::write});
}

/// An action of one unit on `stream`.
inline Action UnitAction(ActionKind kind, StreamKind stream, int unit, int bucket = -1) {
  Action action;
  action.kind = kind;
  action.stream = stream;
  action.unit = unit;
  action.bucket = bucket;
  return action;
}

/// Gradients are reduced after every micro-batch, from a buffer of that micro-batch; otherwise once a step, from the
/// resident gradient that all of them were added to.
inline bool ReducesEachMicroBatch(const PlanOptions& options) {
  return options.stage >= 2 || (options.exact_sharding && options.micro_batches > 1);
}
/// Whether the resident gradient is a whole one.
inline bool KeepsWholeGradient(const PlanOptions& options) {
  return options.stage == 0 || (options.stage == 1 && !ReducesEachMicroBatch(options));
}
/// Bytes of a tied unit's gradient that a rank sends its twin on another stage: this rank's piece of the bucket, or all
/// of it where the optimizer's state is whole.
inline int64_t TiedMessageBytes(const ModelLayout& layout, const PlanOptions& options, int unit, int bucket) {
  const int64_t bytes = layout.units[unit].buckets[bucket].numel() *
                        static_cast<int64_t>(SizeOf(DTypeOfState(StateKind::gradient, options.compute)));
  return options.stage == 0 ? bytes : bytes / layout.ranks;
}
/// Whether ranks keep a part of the unit's parameters only, and gather it to use it.
inline bool ShardsParameters(const ParamUnit& unit, const PlanOptions& options) {
  return options.stage == 3 && !unit.persistent;
}

/// Of each unit, whether its optimizer state is placed as PlanOptions::placement says; otherwise it is on the device.
/// The last units of the model that the stage has are, up to placement.optimizer_ratio of its elements.
std::vector<bool> OffloadedUnits(const ModelLayout& layout, const PlanOptions& options);

/// Whether what the host steps waits for the next step (Action::pending).
inline bool DefersUpdates(const PlanOptions& options) {
  return options.training && options.placement.optimizer != Tier::device && !options.placement.steps_early;
}

/// Whether the segment's saved tensors are dropped and computed again.
inline bool Recomputes(const SegmentSpec& segment, const PlanOptions& options) {
  if (!options.training) return false;
  return (segment.kind == SegmentKind::attention && options.recompute >= RecomputeMode::attention) ||
         (segment.kind == SegmentKind::mlp && options.recompute == RecomputeMode::full);
}

inline bool IsMessage(const Action& action) {
  return action.kind == ActionKind::send || action.kind == ActionKind::receive;
}

inline bool IsMove(const Action& action) {
  return action.kind == ActionKind::fetch || action.kind == ActionKind::store;
}

/// Whether the action reads its segment's parameters.
inline bool ReadsParameters(const Action& action) {
  return action.kind == ActionKind::forward || action.kind == ActionKind::recompute ||
         action.kind == ActionKind::backward_input;
}

/// Bytes that one rank sends in a ring all-gather, or reduce-scatter, of `whole_bytes`.
inline int64_t RingBytes(int64_t whole_bytes, int ranks) { return whole_bytes / ranks * (ranks - 1); }

/// Uses of the gather of one bucket.
Action GatherBucket(const ModelLayout& layout, const Plan& plan, int unit, int bucket, int shard, int whole);

}  // namespace ds
