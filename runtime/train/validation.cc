// Forward passes beside training: the validation loss, and finding where a number stopped being finite.
#include <algorithm>
#include <cmath>

#include "runtime/train/trainer.h"

namespace ds {
namespace {

template <class T>
bool AllFinite(const Tensor& tensor) {
  const T* x = tensor.as<T>();
  for (int64_t i = 0; i < tensor.numel(); ++i)
    if (!std::isfinite(static_cast<float>(x[i]))) return false;
  return true;
}

bool IsFinite(const Tensor& tensor) {
  switch (tensor.dtype) {
    case DType::f32:
      return AllFinite<float>(tensor);
    case DType::bf16:
      return AllFinite<bf16>(tensor);
    case DType::f16:
      return AllFinite<f16>(tensor);
    default:
      return true;
  }
}

}  // namespace

double Trainer::ValidationLoss() {
  environment_.reporter->OnState("validating");
  const int64_t batch = spec_.batch.train_batch_size;
  const int64_t whole_batches = std::max<int64_t>(1, validation_data_->samples() / batch);
  const int64_t batches = std::min(spec_.training.validate_batches, whole_batches);
  StepInputs inputs = Inputs(false);
  double local = 0;
  for (int64_t b = 0; b < batches; ++b) {
    inputs.micro_batches = validation_data_->Read(b * batch);
    for (double loss : forward_executor_->Run(inputs).local_loss) local += loss;
  }
  std::vector<double> losses(static_cast<size_t>(environment_.size));
  communicators_.control->AllGather(Tensor::Of(&local, Shape{1}), Tensor::Of(losses.data(), Shape{environment_.size}));
  double sum = 0;
  for (double loss : losses) sum += loss;
  environment_.reporter->OnState("training");
  return sum / static_cast<double>(batches * batch * spec_.data.sequence_length);
}

// The skipped step left the parameters as they were, so its forward passes can be run again (without dropout) and
// watched. Collective: every rank got the same sums.
std::string Trainer::DiagnoseNonFinite(const StepSums& sums, const std::vector<MicroBatch>& micro_batches) {
  double first[2] = {-1, -1};  // micro-batch, segment
  StepInputs inputs = Inputs(false);
  inputs.micro_batches = micro_batches;
  inputs.inspect = [&first](int segment, int micro_batch, Tensor output) {
    if (first[1] >= 0 || !output || IsFinite(output)) return;
    first[0] = micro_batch;
    first[1] = segment;
  };
  const StepOutcome outcome = forward_executor_->Run(inputs);
  for (size_t m = 0; m < outcome.local_loss.size() && first[1] < 0; ++m) {
    if (std::isfinite(outcome.local_loss[m])) continue;
    first[0] = static_cast<double>(m);
    first[1] = static_cast<double>(layout_.segments.size() - 1);
  }
  std::vector<double> all(static_cast<size_t>(environment_.size) * 2);
  communicators_.control->AllGather(Tensor::Of(first, Shape{2}),
                                    Tensor::Of(all.data(), Shape{static_cast<int64_t>(all.size())}));
  for (int rank = 0; rank < environment_.size; ++rank) {
    if (all[2 * rank + 1] < 0) continue;
    return "the output of segment " + layout_.segments[static_cast<size_t>(all[2 * rank + 1])].name +
           " is not finite on rank " + std::to_string(rank) + " (micro-batch " +
           std::to_string(static_cast<int>(all[2 * rank])) + "), the first in the forward pass";
  }
  if (sums.bad_loss_rank >= 0)
    return "the loss of rank " + std::to_string(sums.bad_loss_rank) + " is not finite (micro-batch " +
           std::to_string(sums.bad_loss_micro_batch) + "), although every segment's output is without dropout";
  return "the gradient of " + layout_.units[sums.bad_unit].name + " is not finite (the part that rank " +
         std::to_string(sums.bad_rank) + " owns; first in the backward pass), although every segment's output is";
}

}  // namespace ds
