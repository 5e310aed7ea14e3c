#include "kernels/cuda_check.h"
#include "kernels/step_decision_math.h"

namespace ds::cuda {
namespace {

__global__ void WriteFactsKernel(const double* losses, int64_t count, double notices, double* facts) {
  detail::WriteFacts(losses, count, notices, facts);
}

__global__ void DecideKernel(StepRule rule, const double* facts, float* gradient_scale, int32_t* skip) {
  detail::Decide(rule, facts, gradient_scale, skip);
}

}  // namespace

// One thread each: a few hundred numbers, whose order of addition is promised.
void WriteStepFacts(const KernelContext& context, Tensor losses, double notices, Tensor facts) {
  WriteFactsKernel<<<1, 1, 0, Stream(context)>>>(losses.as<double>(), losses.numel(), notices, facts.as<double>());
  CheckLaunch("WriteStepFacts");
}

void DecideStep(const KernelContext& context, const StepRule& rule, Tensor facts, Tensor gradient_scale, Tensor skip) {
  DecideKernel<<<1, 1, 0, Stream(context)>>>(rule, facts.as<double>(), gradient_scale.as<float>(), skip.as<int32_t>());
  CheckLaunch("DecideStep");
}

}  // namespace ds::cuda
