// The second pass of a conversion: from the tokens in the order of the inputs to token files, in the order and split
// that are wanted. Memory does not depend on the number of documents.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/data/conversion_work.h"
#include "runtime/data/token_file.h"

namespace ds {

struct AssembleOptions {
  /// The i-th document of the output is document Sampler(documents, *shuffle_seed).At(i) of the inputs; absent:
  /// document i.
  std::optional<uint64_t> shuffle_seed;
  double validation_fraction = 0;
  std::function<void(int64_t tokens_done)> progress;  ///< may throw to stop
};

/// Writes the documents of `work` to sets[0] or (those that validation_fraction chooses) to sets[1].
void Assemble(const ConversionWork& work, const AssembleOptions& options,
              const std::vector<std::unique_ptr<TokenFileWriter>>& sets);

}  // namespace ds
