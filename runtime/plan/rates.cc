#include "runtime/plan/rates.h"

#include <cmath>
#include <cstdlib>

namespace ds {
namespace {

bool Alike(DType a, DType b) { return a == b || (SizeOf(a) == 2 && SizeOf(b) == 2) || (IsFp8(a) && IsFp8(b)); }

double Far(int64_t wanted, int64_t measured) {
  return std::fabs(std::log2(static_cast<double>(wanted) / static_cast<double>(measured)));
}

/// The least of `distance` over those that `counts`; where some are `same`, over those.
template <typename T, typename Counts, typename Same, typename Distance>
const T* Nearest(const std::vector<T>& measured, Counts counts, Same same, Distance distance) {
  const T* best = nullptr;
  for (const T& entry : measured) {
    if (!counts(entry)) continue;
    if (best && same(*best) != same(entry) ? same(*best) : best && distance(*best) <= distance(entry)) continue;
    best = &entry;
  }
  return best;
}

}  // namespace

std::optional<double> MatMulRateOf(const std::vector<MatMulRate>& measured, const MatMulKey& key) {
  const MatMulRate* best = Nearest(
      measured, [&](const MatMulRate& r) { return Alike(r.dtype, key.ab); },
      [&](const MatMulRate& r) { return r.transpose_a == key.transpose_a && r.transpose_b == key.transpose_b; },
      [&](const MatMulRate& r) { return Far(key.m, r.m) + Far(key.n, r.n) + Far(key.k, r.k); });
  return best ? std::optional(best->flops_per_second) : std::nullopt;
}

std::optional<double> AttentionRateOf(const std::vector<AttentionRate>& measured, const AttentionRate& wanted) {
  const AttentionRate* best = Nearest(
      measured, [&](const AttentionRate& r) { return Alike(r.dtype, wanted.dtype) && r.backward == wanted.backward; },
      [&](const AttentionRate& r) { return r.deterministic == wanted.deterministic; },
      [&](const AttentionRate& r) { return Far(wanted.tokens, r.tokens) + Far(wanted.head_size, r.head_size); });
  return best ? std::optional(best->flops_per_second) : std::nullopt;
}

std::optional<double> CollectiveSeconds(const std::vector<CollectiveRate>& measured, CollectiveKind kind, int ranks,
                                        int64_t bytes) {
  const CollectiveRate* best = Nearest(
      measured, [&](const CollectiveRate& r) { return r.kind == kind; }, [](const CollectiveRate&) { return true; },
      [&](const CollectiveRate& r) { return Far(ranks, r.ranks); });
  if (!best) return std::nullopt;
  return best->rate.latency_seconds * (ranks - 1) / static_cast<double>(best->ranks - 1) +
         static_cast<double>(bytes) / best->rate.bytes_per_second;
}

}  // namespace ds
