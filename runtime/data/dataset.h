// Training samples: token files and the order in which they are read.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/tensor.h"
#include "runtime/job/job_spec.h"

namespace ds {

/// A stream of tokens cut into samples of sequence_length + 1 tokens (each sample's last token is the next one's first,
/// so every token is a target once). Read-only, thread-safe.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t samples() const = 0;
  /// Tokens of sample `index` into tokens[sequence_length + 1].
  virtual void Read(int64_t index, int32_t* tokens) const = 0;
  virtual int64_t vocabulary() const = 0;
  /// The token that ends a document, and belongs to it. Throws UsageError naming the first file, if any, whose ids are
  /// of a tokenizer that is not known.
  virtual int32_t end_of_document() const = 0;
  /// Tells this data from other data: "N tokens in samples of T, xxh64 CHECKSUM". Of what a checkpoint remembers.
  virtual std::string identity() const = 0;
};

/// Opens what data.train or data.validation names, in that order: prepared token files (PREFIX.tok, also where it is a
/// set of shards; docs/token-file.md), Megatron-LM's pairs (PREFIX.idx; their ids are kept, whatever the tokenizer),
/// text (one document a file), JSON lines (field `text`), both also as gzip or Zstandard, folders of them; texts are
/// tokenized in memory. Token files up to 64 MiB have their checksum verified. Throws UsageError naming the path:
/// missing, not readable, damaged, another tokenizer, a vocabulary beyond the model's, fewer tokens than one sample.
std::unique_ptr<Dataset> OpenDataset(const std::vector<std::string>& paths, const std::string& tokenizer,
                                     int64_t sequence_length, int64_t vocabulary);

/// The order of samples: a permutation per epoch that depends on the seed and the number of samples alone.
class Sampler {
 public:
  Sampler(int64_t samples, uint64_t seed, bool shuffle = true);
  /// The dataset index of the `position`-th sample since the start of training, over epochs without end.
  int64_t At(int64_t position) const;

 private:
  int64_t samples_;
  uint64_t seed_;
  bool shuffle_;
};

/// Where in the global batch sample `i` of micro-batch `m` of `rank` stands: (m * ranks + rank) * micro_batch_size + i.
inline int64_t GlobalBatchIndex(int64_t micro_batch, int64_t rank, int64_t ranks, int64_t micro_batch_size, int64_t i) {
  return (micro_batch * ranks + rank) * micro_batch_size + i;
}

}  // namespace ds
