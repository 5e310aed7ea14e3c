// Finds where a step first has a number that is not finite: an infinity or NaN.
//
// A watched step looks at the parameters that a compute action reads and at everything that any action writes, and
// keeps what comes first in the order of the plan. All ranks of a data-parallel group run the same actions, so that
// their findings can be compared by the action's index.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>

#include "runtime/exec/bind.h"
#include "runtime/state/finite_check.h"

namespace ds {

/// What of an action is not finite.
enum class Quantity : uint8_t {
  parameter,       // read by a compute action (index: in layout.params), or this rank's part of one that is gathered
                   // (index: in the unit)
  output,          // of a segment's forward
  loss,            // of the head's forward
  saved,           // index: in SegmentSpec::saved
  input_grad,      // of BackwardInput
  carried,         // index: in SegmentSpec::carried
  parameter_grad,  // of BackwardWeight; index: in layout.params
  reduced_grad,    // this rank's part of a sum over ranks, or of the sum of a tied unit's two; index: in the unit
};

struct NonFinite {
  int action = -1;  ///< in the plan; -1: everything is finite
  Quantity quantity = Quantity::output;
  int index = -1;        ///< what it means depends on the quantity; -1: padding
  int64_t element = -1;  ///< of the parameter or tensor
  double value = 0;

  explicit operator bool() const { return action >= 0; }
};

/// The findings of one rank in one step. Each stream has its own, so that streams share nothing.
class Watch {
 public:
  /// `gpu`: of the executor whose steps are watched; null: it runs on the host. Outlives the watch.
  Watch(const ModelLayout& layout, const Plan& plan, Gpu* gpu) : layout_(layout), plan_(plan), gpu_(gpu), check_(gpu) {}

  /// Before and after action `index` runs, on its stream's thread, or behind it on the stream `kernel.stream` of a GPU,
  /// which is waited for. Does nothing once the stream has a finding.
  void Before(const KernelContext& kernel, const BoundAction& bound, int index);
  void After(const KernelContext& kernel, const BoundAction& bound, int index);

  NonFinite First() const;  ///< no stream may be running

 private:
  NonFinite& Of(const BoundAction& bound) { return first_[static_cast<int>(bound.action->stream)]; }
  double Loss(const KernelContext& kernel, const double* loss_sum);
  void LookAt(const KernelContext& kernel, NonFinite& first, int action, Quantity quantity, int index, const Tensor& x);
  void LookAtPart(const KernelContext& kernel, NonFinite& first, int action, Quantity quantity, const Action& of,
                  const Tensor& part, int64_t unit_begin);

  const ModelLayout& layout_;
  const Plan& plan_;
  Gpu* const gpu_;
  const FiniteCheck check_;
  std::mutex mutex_;  // of check_: a GPU rank's host stream looks while its device's work is enqueued
  NonFinite first_[kStreams];
};

/// What was found and where, without the rank: "the output of segment layer1.mlp in the forward pass of micro-batch 0
/// is nan (element 17; plan action 9 Forward layer1.mlp mb0)".
std::string Describe(const ModelLayout& layout, const Plan& plan, const NonFinite& found);
/// The name of the segment that it is in.
std::string SegmentOf(const ModelLayout& layout, const Plan& plan, const NonFinite& found);
/// The rank that owns the parameter's element under ZeRO; -1: every rank has its own, or it is no parameter.
int OwnerOf(const ModelLayout& layout, const Plan& plan, const NonFinite& found);

/// For tests: puts `value` into the first element, of this rank's part, of the first thing that the action wrote.
/// `kernel`, `gpu`: those that ran the action.
void Spoil(const KernelContext& kernel, Gpu* gpu, const ModelLayout& layout, const Plan& plan, const BoundAction& bound,
           double value);

}  // namespace ds
