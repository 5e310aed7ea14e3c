#include "runtime/train/batches.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/data/first_keys.h"
#include "runtime/job/tokenizer_keys.h"

namespace ds {
namespace {

std::unique_ptr<Dataset> OpenDatasetOf(const JobSpec& spec, const std::vector<std::string>& paths) {
  CheckTokenizer(spec);  // nodes may have other files under one name
  return OpenDataset(paths, spec.data.tokenizer, spec.data.sequence_length, spec.model.vocabulary);
}

}  // namespace

BatchReader::BatchReader(const JobSpec& spec, const std::vector<std::string>& paths, bool shuffle, int rank, int ranks)
    : rank_(rank),
      ranks_(ranks),
      micro_batches_(spec.batch.accumulation),
      micro_batch_size_(spec.batch.micro_batch_size),
      tokens_(spec.data.sequence_length),
      dataset_(OpenDatasetOf(spec, paths)),
      sampler_(dataset_->samples(), spec.seed, shuffle) {
  const size_t tokens = static_cast<size_t>(micro_batches_ * micro_batch_size_ * tokens_);
  inputs_.resize(tokens);
  targets_.resize(tokens);
  sample_.resize(static_cast<size_t>(tokens_ + 1));
  if (!spec.data.reset_attention) return;
  try {
    end_of_document_ = dataset_->end_of_document();
  } catch (const UsageError& error) {
    throw UsageError("data.reset_attention: " + std::string(error.what()) + ", or write data.reset_attention: false");
  }
  first_keys_.resize(tokens);
}

std::vector<MicroBatch> BatchReader::Read(int64_t position) {
  std::vector<MicroBatch> micro_batches;
  int64_t at = 0;
  const Shape shape{micro_batch_size_, tokens_};
  for (int64_t m = 0; m < micro_batches_; ++m) {
    MicroBatch micro_batch;
    micro_batch.first_sample = GlobalBatchIndex(m, rank_, ranks_, micro_batch_size_, 0);
    micro_batch.tokens = Tensor::Of(&inputs_[at], shape);
    micro_batch.targets = Tensor::Of(&targets_[at], shape);
    if (end_of_document_) micro_batch.first_key = Tensor::Of(&first_keys_[at], shape);
    for (int64_t i = 0; i < micro_batch_size_; ++i, at += tokens_) {
      if (skip_) continue;
      dataset_->Read(sampler_.At(position + micro_batch.first_sample + i), sample_.data());
      std::copy_n(sample_.begin(), tokens_, inputs_.begin() + at);
      std::copy_n(sample_.begin() + 1, tokens_, targets_.begin() + at);
      if (end_of_document_) WriteFirstKeys(sample_.data(), tokens_, *end_of_document_, &first_keys_[at]);
    }
    micro_batches.push_back(micro_batch);
  }
  return micro_batches;
}

}  // namespace ds
