// A trained model, for inference on the CPU: parameters of a checkpoint, and logits of the token after a text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "runtime/job/job_spec.h"

namespace ds {

class LanguageModel {
 public:
  /// Loads the parameters of the checkpoint's folder, fp32. Throws RuntimeError naming what is damaged or missing.
  LanguageModel(const std::filesystem::path& checkpoint, int threads);
  ~LanguageModel();

  const JobSpec& job() const;
  int64_t step() const;        ///< of training
  int64_t parameters() const;  ///< without padding
  int64_t context() const;     ///< tokens that the model looks back on: those it was trained with
  int64_t vocabulary() const;

  /// The logits [vocabulary] of the token after `tokens`, of which the last context() count. Not empty. Valid until the
  /// next call. Computes the whole window anew: nothing is kept between calls.
  std::span<const float> Logits(std::span<const int32_t> tokens);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ds
