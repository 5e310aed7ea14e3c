// Forward passes beside training: the validation loss.
#include <algorithm>

#include "runtime/train/trainer.h"

namespace ds {

double Trainer::ValidationLoss() {
  FinishUpdates();
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

}  // namespace ds
