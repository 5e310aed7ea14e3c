#include "kernels/matmul_choice.h"

#include <stdexcept>

#include "kernels/check.h"
#include "kernels/cuda_twins.h"

namespace ds {

int64_t MatMulLibraryVersion() { return cuda::MatMulLibraryVersion ? cuda::MatMulLibraryVersion() : 0; }

void SetMatMulChoices(int64_t library_version, MatMulChoices choices) {
  const int64_t own = MatMulLibraryVersion();
  detail::Check(choices.empty() || library_version == own, "SetMatMulChoices",
                "the algorithms are those of version " + std::to_string(library_version) +
                    " of the library, and this program has " +
                    (own == 0 ? std::string("none") : "version " + std::to_string(own)) +
                    "; measure the machine again with this program");
  if (cuda::SetMatMulChoices) cuda::SetMatMulChoices(library_version, std::move(choices));
}

std::vector<MatMulCandidate> TimeMatMulCandidates(const KernelContext& context, const MatMulKey& key, int limit) {
  if (!cuda::TimeMatMulCandidates)
    throw std::runtime_error("TimeMatMulCandidates: this program was built without GPU code");
  detail::Check(key.m > 0 && key.n > 0 && key.k > 0 && limit > 0, "TimeMatMulCandidates",
                "a product of m = " + std::to_string(key.m) + ", n = " + std::to_string(key.n) +
                    ", k = " + std::to_string(key.k) + ", limit " + std::to_string(limit));
  return cuda::TimeMatMulCandidates(context, key, limit);
}

}  // namespace ds
