// The samples of this rank's micro-batches, read from a dataset in the sampler's order.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/data/dataset.h"
#include "runtime/exec/executor.h"
#include "runtime/job/job_spec.h"

namespace ds {

class BatchReader {
 public:
  /// `paths`: data.train or data.validation of `spec`. shuffle: in the sampler's order; otherwise the file's. Throws
  /// UsageError, as OpenDataset does, and where attention is to stay within documents whose ends are not known.
  BatchReader(const JobSpec& spec, const std::vector<std::string>& paths, bool shuffle, int rank, int ranks);

  /// This rank's micro-batches of the global batch whose first sample is the `position`-th of training. The tensors are
  /// valid until the next call.
  std::vector<MicroBatch> Read(int64_t position);

  /// From now on Read reads no samples, and its tensors hold zeros: the stages inside of a pipeline need them not.
  void SkipSamples() { skip_ = true; }

  int64_t samples() const { return dataset_->samples(); }
  std::string identity() const { return dataset_->identity(); }

 private:
  int rank_, ranks_;
  int64_t micro_batches_, micro_batch_size_, tokens_;
  std::unique_ptr<Dataset> dataset_;
  Sampler sampler_;
  bool skip_ = false;
  std::optional<int32_t> end_of_document_;  // where attention stays within documents
  std::vector<int32_t> inputs_, targets_, first_keys_, sample_;
};

}  // namespace ds
