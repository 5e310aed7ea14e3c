// From a layout to a checked, priced plan: the passes in their order. Each pass is a function in a file of its own.
//
//   compute_order   Forward, BackwardInput, BackwardWeight of every micro-batch in the schedule's order, with their
//                   activations, and Send and Receive of these between pipeline stages
//   recompute       drops saved tensors after the forward, inserts Recompute before the backward
//   residency       resident buffers by ZeRO stage; binds params and grads operands
//   gather          Gather and Release within the byte budgets, a segment ahead (ZeRO-3)
//   reduce          Reduce of each bucket when its gradient is complete
//   exchange_tied   a tied table's gradients go to the other stage that has it
//   step            SumTied, Norm, OptimizerStep, Gather of updated parameters; before the forward, the updates that
//                   the step before left to the host
//   moves           Fetch and Store of activations, then of state (move_activations.cc, move_state.cc)
//   arena           offsets from live intervals
//   streams         waits and signals from every pair of conflicting uses
//   check           refuses what would deadlock or read what is not there
//   price           peak bytes, step time
#pragma once

#include <string>
#include <vector>

#include "runtime/plan/plan.h"

namespace ds {

struct Machine;  // runtime/plan/price.h

/// Builds the plan of one rank, priced with the default machine of its device or with `machine`, on which nothing but
/// the price depends. Throws Error when the check finds fault (a defect of a pass, never of the user).
Plan BuildPlan(const ModelLayout& layout, const PlanOptions& options);
Plan BuildPlan(const ModelLayout& layout, const PlanOptions& options, const Machine& machine);

/// The options of the plan that does what a step left to the next one, and nothing else. It shares the memory of the
/// step's plan, whose arena has room for it.
PlanOptions UpdatesOnly(PlanOptions options);

/// The dtype of activations and working parameters.
DType ComputeDType(Precision precision);
/// fp32 moments an optimizer keeps.
int MomentCount(const OptimizerConfig& optimizer);
/// Options and layout of `rank` of the `world` ranks of a job. What is predicted of `machine` decides where a pipeline
/// is cut (parallel.partition: time), and nothing else. Throws UsageError where the model cannot be cut so.
PlanOptions PlanOptionsOf(const JobSpec& spec, int rank, int world, DeviceKind device = DeviceKind::cpu);
PlanOptions PlanOptionsOf(const JobSpec& spec, int rank, int world, DeviceKind device, const Machine& machine);
ModelLayout LayoutOf(const JobSpec& spec, int world);

/// A plan of each stage of the pipeline that `options` are of, priced together; without one, the plan.
std::vector<Plan> BuildStagePlans(const ModelLayout& layout, const PlanOptions& options, const Machine& machine);

/// Bytes that a node has for one rank; 0: unknown.
struct TierRoom {
  int64_t device = 0;  ///< on a CPU for its device and host tiers together
  int64_t host = 0;    ///< of a GPU's host
  TierRoom() = default;
  TierRoom(int64_t device_bytes, int64_t host_bytes = 0) : device(device_bytes), host(host_bytes) {}
};

/// What the plan needs beyond memory.device_limit, memory.host_limit or what the node has: "a rank needs 12.0 GiB of
/// host memory, and memory.host_limit is 8.0 GiB"; empty where it keeps within all of them.
std::string Excess(const JobSpec& spec, const Plan& plan, const TierRoom& room);

/// Throws UsageError where there is some Excess: with the numbers by kind and the nearest changes that would fit.
/// `machine`: what the plan was priced with.
void CheckFits(const JobSpec& spec, const ModelLayout& layout, const Plan& plan, const TierRoom& room);
void CheckFits(const JobSpec& spec, const ModelLayout& layout, const Plan& plan, const TierRoom& room,
               const Machine& machine);

/// The plan as text: a header, buffers, one action a line. Stable: golden tests and people read it.
std::string ToText(const ModelLayout& layout, const Plan& plan);

/// The stages of a pipeline (BuildStagePlans), a line each, and what they come to together: for people.
std::string PipelineText(const ModelLayout& layout, const std::vector<Plan>& stages, const Machine& machine);

/// The name of action `index` as every message, profile and error writes it: "17 BackwardWeight layer3.mlp mb0".
std::string Describe(const ModelLayout& layout, const Plan& plan, size_t index);
/// The same without the index: "Reduce embedding.tokens (head) bucket 0 mb1".
std::string Describe(const ModelLayout& layout, const Action& action);

}  // namespace ds
