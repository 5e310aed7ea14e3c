#include "runtime/exec/watch.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "kernels/elementwise.h"
#include "runtime/plan/planner.h"

namespace ds {
namespace {

bool IsFloating(const Tensor& x) {
  return x && (x.dtype == DType::f64 || x.dtype == DType::f32 || x.dtype == DType::bf16 || x.dtype == DType::f16);
}

double At(Gpu* gpu, const Tensor& x, int64_t i) {
  std::array<std::byte, sizeof(double)> bytes;
  const Tensor element(bytes.data(), x.dtype, Shape{1});
  CopyNow(gpu, x.Flat(i, 1), element);
  double value = 0;
  Cast({}, element, Tensor::Of(&value, Shape{1}));
  return value;
}

const char* NameOf(double value) { return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf"; }

/// "in the forward pass of micro-batch 0"
std::string PassName(const Action& action) {
  std::string text;
  switch (action.kind) {
    case ActionKind::forward:
      text = "in the forward pass";
      break;
    case ActionKind::recompute:
      text = "when the forward pass is computed again";
      break;
    case ActionKind::gather:
      return "as it was gathered";
    case ActionKind::sum_tied:
      return "at the end of the backward pass";
    default:
      text = "in the backward pass";
  }
  return text + " of micro-batch " + std::to_string(action.micro_batch);
}

/// The parameter of a finding, and where it is; null: none, or padding.
const FlatParam* ParamOf(const ModelLayout& layout, const Action& action, const NonFinite& found, int* unit) {
  if (found.index < 0) return nullptr;
  if (action.unit >= 0) {
    *unit = action.unit;
    return &layout.units[action.unit].params[found.index];
  }
  const ParamRef& ref = layout.params[action.segment][found.index];
  *unit = ref.unit;
  return &layout.units[ref.unit].params[ref.param];
}

std::string NameOfParameter(const ModelLayout& layout, const Action& action, const NonFinite& found) {
  int unit = 0;
  const FlatParam* param = ParamOf(layout, action, found, &unit);
  return param ? param->spec.name : "(padding)";
}

}  // namespace

double Watch::Loss(const KernelContext& kernel, const double* loss_sum) {
  if (!gpu_) return *loss_sum;
  gpu_->Synchronize(kernel.stream);
  return At(gpu_, Tensor(const_cast<double*>(loss_sum), DType::f64, Shape{1}, gpu_->device()), 0);
}

void Watch::LookAt(const KernelContext& kernel, NonFinite& first, int action, Quantity quantity, int index,
                   const Tensor& x) {
  if (first || !IsFloating(x)) return;
  const std::lock_guard lock(mutex_);  // the check has one place for what it finds
  const int64_t element = check_.First(kernel, x);
  if (element >= 0) first = {action, quantity, index, element, At(gpu_, x, element)};
}

/// `part` is elements of a unit from `unit_begin` on.
void Watch::LookAtPart(const KernelContext& kernel, NonFinite& first, int action, Quantity quantity, const Action& of,
                       const Tensor& part, int64_t unit_begin) {
  if (first) return;
  LookAt(kernel, first, action, quantity, -1, part);
  if (!first) return;
  const std::vector<FlatParam>& params = layout_.units[of.unit].params;
  const int64_t at = unit_begin + first.element;
  for (size_t p = 0; p < params.size(); ++p) {
    if (at < params[p].offset || at >= params[p].offset + params[p].numel()) continue;
    first.index = static_cast<int>(p);
    first.element = at - params[p].offset;
  }
}

void Watch::Before(const KernelContext& kernel, const BoundAction& bound, int index) {
  NonFinite& first = Of(bound);
  if (first) return;
  const Action& action = *bound.action;
  if (action.kind == ActionKind::gather) {
    const ShardRange own = layout_.ShardRanges(action.unit, plan_.options.rank).at(action.bucket);
    return LookAtPart(kernel, first, index, Quantity::parameter, action, bound.shard, own.unit_begin);
  }
  for (size_t p = 0; p < bound.io.params.size(); ++p)
    LookAt(kernel, first, index, Quantity::parameter, static_cast<int>(p), bound.io.params[p]);
}

void Watch::After(const KernelContext& kernel, const BoundAction& bound, int index) {
  NonFinite& first = Of(bound);
  if (first) return;
  const Action& action = *bound.action;
  auto look_at_all = [&](Quantity quantity, const std::vector<Tensor>& tensors) {
    for (size_t i = 0; i < tensors.size(); ++i) LookAt(kernel, first, index, quantity, static_cast<int>(i), tensors[i]);
  };
  switch (action.kind) {
    case ActionKind::forward:
      if (!bound.io.y && bound.io.loss_sum) {
        const double loss = Loss(kernel, bound.io.loss_sum);
        if (!std::isfinite(loss)) {
          first = {index, Quantity::loss, -1, 0, loss};
          return;
        }
      }
      look_at_all(Quantity::saved, bound.io.saved);
      return LookAt(kernel, first, index, Quantity::output, -1, bound.io.y);
    case ActionKind::recompute:
      return look_at_all(Quantity::saved, bound.io.saved);
    case ActionKind::backward_input:
      look_at_all(Quantity::carried, bound.io.carried);
      return LookAt(kernel, first, index, Quantity::input_grad, -1, bound.io.dx);
    case ActionKind::backward_weight:
      return look_at_all(Quantity::parameter_grad, bound.io.grads);
    case ActionKind::reduce: {
      const ShardRange own = layout_.ShardRanges(action.unit, plan_.options.rank).at(action.bucket);
      return LookAtPart(kernel, first, index, Quantity::reduced_grad, action, bound.shard, own.unit_begin);
    }
    case ActionKind::sum_tied: {
      // One pair for the whole unit, one a range that this rank owns, or one of the action's bucket.
      const std::vector<ShardRange> ranges = layout_.ShardRanges(action.unit, plan_.options.rank);
      if (action.bucket >= 0)
        return LookAtPart(kernel, first, index, Quantity::reduced_grad, action, bound.sums[0].first,
                          ranges.at(action.bucket).unit_begin);
      for (size_t i = 0; i < bound.sums.size(); ++i)
        LookAtPart(kernel, first, index, Quantity::reduced_grad, action, bound.sums[i].first,
                   bound.sums[i].first.numel() == layout_.units[action.unit].numel ? 0 : ranges.at(i).unit_begin);
      return;
    }
    default:
      return;
  }
}

NonFinite Watch::First() const {
  NonFinite first;
  for (const NonFinite& of_stream : first_)
    if (of_stream && (!first || of_stream.action < first.action)) first = of_stream;
  return first;
}

std::string SegmentOf(const ModelLayout& layout, const Plan& plan, const NonFinite& found) {
  const Action& action = plan.actions.at(found.action);
  if (action.segment >= 0) return layout.segments[action.segment].name;
  for (size_t s = 0; s < layout.segments.size(); ++s)
    for (int unit : layout.units_of[s])
      if (unit == action.unit) return layout.segments[s].name;
  return layout.units[action.unit].name;
}

std::string Describe(const ModelLayout& layout, const Plan& plan, const NonFinite& found) {
  const Action& action = plan.actions.at(found.action);
  const std::string segment = "segment " + SegmentOf(layout, plan, found);
  std::string what;
  switch (found.quantity) {
    case Quantity::parameter:
      what = "parameter " + NameOfParameter(layout, action, found) + " of " + segment;
      break;
    case Quantity::output:
      what = "the output of " + segment;
      break;
    case Quantity::loss:
      what = "the loss of " + segment;
      break;
    case Quantity::saved:
      what = "saved tensor " + layout.segments[action.segment].saved.at(found.index).name + " of " + segment;
      break;
    case Quantity::input_grad:
      what = "the gradient of the input of " + segment;
      break;
    case Quantity::carried:
      what = "carried gradient " + layout.segments[action.segment].carried.at(found.index).name + " of " + segment;
      break;
    case Quantity::parameter_grad:
      what = "the gradient of parameter " + NameOfParameter(layout, action, found) + " of " + segment;
      break;
    case Quantity::reduced_grad:
      what = "the gradient of parameter " + NameOfParameter(layout, action, found) + " of " + segment +
             (action.kind == ActionKind::reduce ? ", summed over the ranks," : ", both uses summed,");
      break;
  }
  what += " " + PassName(action) + " is " + NameOf(found.value) + " (";
  if (found.quantity != Quantity::loss) what += "element " + std::to_string(found.element) + "; ";
  return what + "plan action " + Describe(layout, plan, static_cast<size_t>(found.action)) + ")";
}

int OwnerOf(const ModelLayout& layout, const Plan& plan, const NonFinite& found) {
  if (found.quantity != Quantity::parameter || plan.options.stage == 0) return -1;
  int unit = 0;
  const FlatParam* param = ParamOf(layout, plan.actions.at(found.action), found, &unit);
  if (!param) return -1;
  const int64_t at = param->offset + found.element;
  for (const Bucket& bucket : layout.units[unit].buckets)
    if (at >= bucket.begin && at < bucket.end)
      return static_cast<int>((at - bucket.begin) / (bucket.numel() / layout.ranks));
  return -1;
}

void Spoil(const KernelContext& kernel, Gpu* gpu, const ModelLayout& layout, const Plan& plan, const BoundAction& bound,
           double value) {
  auto put = [&](const Tensor& x) { Fill(kernel, x.Flat(0, 1), value); };
  const SegmentIo& io = bound.io;
  switch (bound.action->kind) {
    case ActionKind::forward:
      if (io.y)
        put(io.y);
      else
        put(Tensor(io.loss_sum, DType::f64, Shape{1}, gpu ? gpu->device() : Device{}));
      return;
    case ActionKind::recompute:
      return put(io.saved.at(0));
    case ActionKind::backward_input:
      return put(io.dx);
    case ActionKind::backward_weight:
      return put(io.grads.at(0));
    case ActionKind::gather:
      return put(bound.whole);
    case ActionKind::reduce:
      return put(bound.shard);
    case ActionKind::optimizer_step: {
      const ShardRange own =
          layout.ShardRanges(bound.action->unit, plan.options.rank).at(std::max(0, bound.action->bucket));
      put(bound.state.master.Part(own));
      if (bound.state.working) put(bound.state.working.Part(own));
      return;
    }
    default:
      return;
  }
}

}  // namespace ds
