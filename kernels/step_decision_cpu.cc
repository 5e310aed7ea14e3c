#include "kernels/dispatch.h"
#include "kernels/step_decision_math.h"

namespace ds {

void WriteStepFacts(const KernelContext& context, Tensor losses, double notices, Tensor facts) {
  detail::Check(losses.dtype == DType::f64, "WriteStepFacts", detail::Describe("losses", losses) + ", expected f64");
  detail::Check(facts.dtype == DType::f64 && facts.numel() == kStepFacts, "WriteStepFacts",
                detail::Describe("facts", facts) + ", expected f64 [3]");
  if (detail::RanOnCuda("WriteStepFacts", cuda::WriteStepFacts, context, losses, notices, facts)) return;
  detail::WriteFacts(losses.as<double>(), losses.numel(), notices, facts.as<double>());
}

void DecideStep(const KernelContext& context, const StepRule& rule, Tensor facts, Tensor gradient_scale, Tensor skip) {
  const int64_t width = rule.units + kStepFacts;
  detail::Check(facts.dtype == DType::f64 && facts.numel() == rule.ranks * width, "DecideStep",
                detail::Describe("facts", facts) + ", expected f64 " + Shape{rule.ranks, width}.str());
  detail::Check(gradient_scale.dtype == DType::f32 && gradient_scale.numel() == 1 && skip.dtype == DType::i32 &&
                    skip.numel() == 1,
                "DecideStep",
                detail::Describe("gradient_scale", gradient_scale) + ", " + detail::Describe("skip", skip) +
                    ", expected f32 [1] and i32 [1]");
  if (detail::RanOnCuda("DecideStep", cuda::DecideStep, context, rule, facts, gradient_scale, skip)) return;
  detail::Decide(rule, facts.as<double>(), gradient_scale.as<float>(), skip.as<int32_t>());
}

}  // namespace ds
