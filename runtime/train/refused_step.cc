// What follows when a step's numbers are not finite: what the loss scale says, finding where it began, skipping or
// ending.
//
// Nothing of a refused step lasts (what it did first may be the updates of the step before), so it can be run again:
// same samples, dropout and order of collectives, hence the same bits, this time watched.

#include <tuple>

#include "runtime/base/json.h"
#include "runtime/base/log.h"
#include "runtime/state/finite_check.h"
#include "runtime/train/trainer.h"

namespace ds {
namespace {

/// Steps refused one after another that end a job which would go on: by then it is no odd sample.
constexpr int kMaxRefusedInARow = 20;

/// Every overflow is an event until there were so many; then one event in so many steps sums them up.
constexpr int64_t kOverflowsTold = 20, kStepsBetweenOverflowEvents = 100;

/// What a rank tells of its finding.
enum Fact { kAction, kQuantity, kIndex, kElement, kValue, kFacts };

std::string StepText(int64_t step) { return "step " + std::to_string(step) + ": "; }

}  // namespace

// Called by every rank with the same refusal.
void Trainer::OnRefused(const StepInputs& inputs, const StepSums& sums) {
  const int64_t step = inputs.context.step;
  ++refused_in_a_row_;
  if (refusal_ == Refusal::overflow) {
    TellOverflow(step, inputs.context.loss_scale);
    if (scale_change_ != ScaleChange::exhausted && !(loss_scale_.fixed() && refused_in_a_row_ >= kMaxRefusedInARow))
      return;
    const std::string scale = JsonNumber(loss_scale_.scale());
    const std::string why = loss_scale_.fixed()
                                ? std::to_string(refused_in_a_row_) +
                                      " steps in a row overflowed at the fixed loss scale " + scale +
                                      " (fp16.loss_scale): lower it, or set it to 0 for a dynamic one"
                                : "gradients overflow at the smallest loss scale (fp16.min_loss_scale = " + scale +
                                      "): the run diverges; lower the learning rate, clip gradients, or train in bf16";
    const Diagnosis found = Diagnose(inputs, sums);
    End("loss_scale", found.rank, StepText(step) + why + ". " + found.text);
  }

  const Diagnosis found = Diagnose(inputs, sums);
  const std::string message = StepText(step) + found.text;
  const std::string last = StepsEarly()
                               ? "What the backward had reached before is stepped already (offload_optimizer without "
                                 "gradient_clipping)"
                               : "Parameters are as step " + std::to_string(state_.step) + " left them";
  if (spec_.training.on_nan == OnNan::stop)
    End("not_finite", found.rank,
        message + "; training.on_nan is stop. " + last + "; the last checkpoint is good. " +
            (found.again ? "Lower the learning rate or clip gradients, or set training.on_nan=skip"
                         : "Check that machine, and go on from the checkpoint"));
  if (found.in_parameter)
    End("not_finite", found.rank,
        message + "; skipping steps (training.on_nan: skip) cannot mend a parameter. Resume from the last checkpoint");
  EventOf(found.rank, "nan_skipped", message + "; the optimizer did not step");
  if (refused_in_a_row_ >= kMaxRefusedInARow)
    End("not_finite", found.rank,
        message + "; " + std::to_string(refused_in_a_row_) +
            " steps in a row were skipped (training.on_nan: skip): the run does not recover. " + last);
}

void Trainer::TellOverflow(int64_t step, double scale) {
  ++overflows_;
  ++overflows_untold_;
  if (overflows_ <= kOverflowsTold || step >= overflow_told_at_ + kStepsBetweenOverflowEvents) {
    std::string message = StepText(step) + "gradients overflow at loss scale " + JsonNumber(scale) +
                          (loss_scale_.fixed() ? " (fixed by fp16.loss_scale)" : "") + "; the optimizer did not step";
    if (!loss_scale_.fixed()) message += "; the scale is now " + JsonNumber(loss_scale_.scale());
    if (overflows_untold_ > 1)
      message +=
          "; " + std::to_string(overflows_untold_) + " overflows since step " + std::to_string(overflow_told_at_);
    if (overflows_ == kOverflowsTold)
      message += "; from now on at most one such event in " + std::to_string(kStepsBetweenOverflowEvents) + " steps";
    Event("overflow", message);
    overflow_told_at_ = step;
    overflows_untold_ = 0;
  }
  if (scale_change_ == ScaleChange::reached_floor)
    Event("loss_scale_floor", StepText(step) + "the loss scale is at its floor, " + JsonNumber(loss_scale_.floor()) +
                                  " (fp16.min_loss_scale): gradients that overflow there end the job");
}

Trainer::Diagnosis Trainer::Diagnose(const StepInputs& refused, const StepSums& sums) {
  environment_.reporter->OnState("diagnosing");
  Watch watch(layout_, plan_, environment_.gpu);
  StepInputs inputs = refused;
  inputs.watch = &watch;
  inputs.trace = false;
  inputs.decide = nullptr;
  const StepSums again = executor_->Run(inputs).sums;

  const NonFinite mine = watch.First();
  const double facts[kFacts] = {static_cast<double>(mine.action), static_cast<double>(mine.quantity),
                                static_cast<double>(mine.index), static_cast<double>(mine.element), mine.value};
  std::vector<double> all(static_cast<size_t>(environment_.size) * kFacts);
  communicators_.control->AllGather(Tensor::Of(facts, Shape{kFacts}),
                                    Tensor::Of(all.data(), Shape{static_cast<int64_t>(all.size())}));
  environment_.reporter->OnState("training");
  std::vector<NonFinite> of_rank;
  for (int rank = 0; rank < environment_.size; ++rank) {
    const double* f = &all[static_cast<size_t>(rank) * kFacts];
    of_rank.push_back({static_cast<int>(f[kAction]), static_cast<Quantity>(f[kQuantity]), static_cast<int>(f[kIndex]),
                       static_cast<int64_t>(f[kElement]), f[kValue]});
  }
  Diagnosis diagnosis = Earliest(of_rank);
  return diagnosis.rank >= 0 ? diagnosis : NotReproduced(refused.context.step, sums, again);
}

namespace {

/// A finding and the first that anything is found of, by what made it: a micro-batch after the other, each forward
/// through the model and back. Stages run these in other orders, but what one makes of the other's numbers comes after
/// them in this one. Within a stage it is the plan's.
auto Made(const Action& action) {
  const bool forward =
      action.kind == ActionKind::forward || action.kind == ActionKind::gather || action.kind == ActionKind::recompute;
  return std::tuple(action.micro_batch, !forward, forward ? action.segment : -action.segment);
}

}  // namespace

/// The finding that comes first in the plan's order, and the rank: the lowest that has it, but of a parameter that all
/// ranks hold the one that owns it.
Trainer::Diagnosis Trainer::Earliest(const std::vector<NonFinite>& of_rank) const {
  Diagnosis diagnosis;
  const std::vector<Plan> plans = StagesLike(plan_);
  const int width = mesh_.data_width();
  const auto plan_of = [&](int rank) -> const Plan& { return plans[static_cast<size_t>(rank / width)]; };
  const auto earlier = [&](int a, int b) {
    if (a / width == b / width) return of_rank[a].action < of_rank[b].action;
    return Made(plan_of(a).actions[of_rank[a].action]) < Made(plan_of(b).actions[of_rank[b].action]);
  };
  int having = 0;
  for (int rank = 0; rank < environment_.size; ++rank) {
    if (!of_rank[rank]) continue;
    const bool first = diagnosis.rank < 0 || earlier(rank, diagnosis.rank);
    if (first) diagnosis.rank = rank;
    const bool same = rank / width == diagnosis.rank / width && of_rank[rank].action == of_rank[diagnosis.rank].action;
    having = first ? 1 : having + same;
  }
  if (diagnosis.rank < 0) return diagnosis;
  const Plan& plan = plan_of(diagnosis.rank);
  const int stage = diagnosis.rank / width;
  const NonFinite* first = &of_rank[diagnosis.rank];
  const int owner = OwnerOf(layout_, plan, *first) < 0 ? -1 : stage * width + OwnerOf(layout_, plan, *first);
  if (owner >= 0 && of_rank[owner].action == first->action) {
    diagnosis.rank = owner;
    first = &of_rank[owner];
  }
  diagnosis.in_parameter = first->quantity == Quantity::parameter;
  diagnosis.text = Describe(layout_, plan, *first) + " on rank " + std::to_string(diagnosis.rank);
  if (having > 1)
    diagnosis.text += having < width     ? " and others"
                      : plans.size() > 1 ? " and all others of its stage"
                                         : " and all others";
  return diagnosis;
}

/// Whether a step may have stepped a part of the parameters before Norm refuses it.
bool Trainer::StepsEarly() const {
  const Placement& placement = plan_.options.placement;
  return placement.steps_early && placement.optimizer != Tier::device;
}

/// The same step, computed again, is finite: not what it computes is at fault, but what computes it.
Trainer::Diagnosis Trainer::NotReproduced(int64_t step, const StepSums& sums, const StepSums& again) {
  Diagnosis diagnosis;
  std::string where;
  if (sums.bad_loss_rank >= 0) {
    diagnosis.rank = sums.bad_loss_rank;
    where = "the loss of rank " + std::to_string(diagnosis.rank) + " in micro-batch " +
            std::to_string(sums.bad_loss_micro_batch);
  } else {
    // Gradients are known as sums over ranks only; a rank whose loss was another one stands out.
    diagnosis.rank = sums.bad_rank;
    for (int rank = environment_.size; rank-- > 0;)
      if (sums.rank_loss[rank] != again.rank_loss[rank]) diagnosis.rank = rank;
    where = "the gradient of " + layout_.units[sums.bad_unit].name + ", in the part that rank " +
            std::to_string(sums.bad_rank) + " sums up over the ranks";
  }
  diagnosis.again = false;
  if (StepsEarly()) {  // the step that was computed again had other parameters
    diagnosis.text = "numbers were not finite (" + where +
                     "), and are when the step is computed again with what it had stepped by then; with "
                     "gradient_clipping nothing is stepped before all is known, and the origin is found";
    return diagnosis;
  }
  diagnosis.text = "numbers were not finite, but are when the same step is computed again (" + where +
                   "): suspect the memory or processor of rank " + std::to_string(diagnosis.rank);
  EventOf(diagnosis.rank, "hardware_suspected", StepText(step) + diagnosis.text);
  return diagnosis;
}

/// Ends the job on every rank: on `rank` with the reason, on its peers as its victims.
void Trainer::End(const std::string& kind, int rank, const std::string& message) {
  try {
    FinishCheckpoint();  // every rank ends here, so that the one in flight can still be completed
  } catch (const Error& error) {
    LogWarning(error.what());  // what ends the job is the other trouble
  }
  if (environment_.rank == rank) throw NumericalError(kind, message);
  throw CommunicatorAborted("rank " + std::to_string(rank) + " ended the job: " + message);
}

void Trainer::EventOf(int rank, const std::string& kind, const std::string& message) {
  if (environment_.rank == rank) environment_.reporter->OnEvent(kind, message);
}

/// -1: none is.
int64_t Trainer::FirstNotFinite(const FiniteCheck& check, const StateRun& run) const {
  const KernelContext kernel{environment_.threads};
  if (run.data) return check.First(kernel, run.data);
  constexpr int64_t kPiece = 1 << 20;  // elements
  std::vector<float> values(static_cast<size_t>(std::min(kPiece, run.count)));
  for (int64_t begin = 0; begin < run.count; begin += kPiece) {
    const Tensor piece = Tensor::Of(values.data(), Shape{std::min(kPiece, run.count - begin)});
    store_->ReadFiles(run, begin, piece);
    if (const int64_t at = check.First(kernel, piece); at >= 0) return begin + at;
  }
  return -1;
}

void Trainer::CheckStateIsFinite() const {
  const FiniteCheck check(environment_.gpu);
  for (const StateRun& run : store_->Owned()) {
    const int64_t at = FirstNotFinite(check, run);
    if (at < 0) continue;
    throw NumericalError("not_finite", "checkpoint of step " + std::to_string(state_.step) + ": the " +
                                           NameOf(run.state) + " of parameter " + run.param->name +
                                           " is not finite on rank " + std::to_string(environment_.rank) +
                                           " (element " + std::to_string(run.begin + at) +
                                           "); nothing was written, the last checkpoint is good. Lower the learning "
                                           "rate or clip gradients");
  }
}

}  // namespace ds
