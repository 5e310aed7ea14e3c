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
  int64_t context() const;     ///< tokens that the model looks back on at most: those it was trained with
  int64_t vocabulary() const;
  int64_t cache_bytes() const;  ///< of keys and values; besides them, memory holds each parameter once

  /// Off: keys and values are not kept between calls, each computes its whole window. The logits are the same, bit for
  /// bit.
  void KeepCache(bool keep);

  /// The logits [vocabulary] of the token after `tokens`, which are not empty; of a text longer than the context the
  /// window from WindowBegin counts. Valid until the next call. What this text's beginning has in common with the last
  /// call's is not computed again.
  std::span<const float> Logits(std::span<const int32_t> tokens);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Where the window of a text of `length` tokens begins: at 0 while the text fits the context; then it moves on by half
/// a context whenever it is full. Positions count from the window's begin, so keys and values are computed anew when it
/// moves: once in half a context, not with every token.
int64_t WindowBegin(int64_t length, int64_t context);

}  // namespace ds
