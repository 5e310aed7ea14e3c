#include <algorithm>
#include <cmath>

#include "kernels/cached_attention.h"
#include "kernels/convert.h"
#include "kernels/dispatch.h"
#include "kernels/lanes.h"
#include "kernels/parallel.h"
#include "kernels/vector_math.h"

namespace ds {
namespace {

using detail::Acc;

template <class T>
struct Cache {
  T* data;
  int64_t capacity, head_size;
  T* At(int64_t kv, int64_t position) const { return data + (kv * capacity + position) * head_size; }
};

/// What one task works in: the query, one cached vector, the sum of values, and the scores of all positions.
template <class T>
struct Scratch {
  Acc<T>*query, *vector, *sum, *scores;

  Scratch(const CachedAttentionShape& s, std::byte* memory) : query(reinterpret_cast<Acc<T>*>(memory)) {
    vector = query + s.head_size, sum = vector + s.head_size, scores = sum + s.head_size;
  }
  static int64_t Bytes(const CachedAttentionShape& s) {
    return (3 * s.head_size + s.first + s.rows) * static_cast<int64_t>(sizeof(Acc<T>));
  }
};

/// out = softmax(scale * query . keys) values, over positions [0, seen). Every sum has an order that depends on
/// head_size and `seen` alone.
template <class T>
void AttendRow(const T* query, const Cache<T>& keys, const Cache<T>& values, int64_t kv, int64_t seen,
               const Scratch<T>& w, T* out) {
  using A = Acc<T>;
  const int64_t size = keys.head_size;
  const A scale = A(1) / std::sqrt(static_cast<A>(size));
  const A* q = detail::Load(query, w.query, size);
  for (int64_t j = 0; j < seen; ++j) {
    const A* k = detail::Load(keys.At(kv, j), w.vector, size);
    w.scores[j] = detail::LaneSum<A>(size, [=](int64_t d) { return q[d] * k[d]; });
  }
  A* scores = w.scores;
  const A largest = detail::LaneMax(scores, seen);
  const A total = detail::LaneSum<A>(seen, [=](int64_t j) {
    const A e = detail::Exp(scale * (scores[j] - largest));
    scores[j] = e;
    return e;
  });
  A* sum = w.sum;
  std::fill_n(sum, size, A(0));
  for (int64_t j = 0; j < seen; ++j) {
    const A* v = detail::Load(values.At(kv, j), w.vector, size);
    const A p = scores[j] / total;
#pragma omp simd
    for (int64_t d = 0; d < size; ++d) sum[d] += p * v[d];
  }
  detail::Convert(sum, out, size);
}

template <class T>
void Attend(const KernelContext& context, const CachedAttentionShape& s, const T* qkv, const Cache<T>& keys,
            const Cache<T>& values, T* out) {
  const int64_t width = (s.heads + 2 * s.kv_heads) * s.head_size, group = s.heads / s.kv_heads;
  for (int64_t row = 0; row < s.rows; ++row)
    for (int64_t kv = 0; kv < s.kv_heads; ++kv) {
      const T* key = qkv + row * width + (s.heads + kv) * s.head_size;
      std::copy_n(key, s.head_size, keys.At(kv, s.first + row));
      std::copy_n(key + s.kv_heads * s.head_size, s.head_size, values.At(kv, s.first + row));
    }
  detail::ParallelForWithScratch(context, s.rows * s.heads, Scratch<T>::Bytes(s), [&](int64_t i, std::byte* memory) {
    const int64_t row = i / s.heads, head = i % s.heads;
    AttendRow<T>(qkv + row * width + head * s.head_size, keys, values, head / group, s.first + row + 1,
                 Scratch<T>(s, memory), out + i * s.head_size);
  });
}

}  // namespace

void CachedAttention(const KernelContext& context, const CachedAttentionShape& shape, Tensor qkv, Tensor keys,
                     Tensor values, Tensor out) {
  const char* kernel = "CachedAttention";
  const CachedAttentionShape& s = shape;
  detail::Check(s.rows >= 0 && s.first >= 0 && s.first + s.rows <= s.capacity && s.head_size > 0 && s.kv_heads > 0 &&
                    s.heads > 0 && s.heads % s.kv_heads == 0,
                kernel,
                "rows " + std::to_string(s.rows) + " from position " + std::to_string(s.first) + " of " +
                    std::to_string(s.capacity) + ", heads " + std::to_string(s.heads) + ", kv_heads " +
                    std::to_string(s.kv_heads) + ", head_size " + std::to_string(s.head_size) +
                    ": rows end within the capacity, sizes are positive and heads a multiple of kv_heads");
  detail::CheckFloating(kernel, "qkv", qkv);
  detail::CheckVector(kernel, "qkv", qkv, qkv.dtype, s.rows * (s.heads + 2 * s.kv_heads) * s.head_size);
  detail::CheckVector(kernel, "keys", keys, qkv.dtype, s.kv_heads * s.capacity * s.head_size);
  detail::CheckVector(kernel, "values", values, qkv.dtype, s.kv_heads * s.capacity * s.head_size);
  detail::CheckVector(kernel, "out", out, qkv.dtype, s.rows * s.heads * s.head_size);
  detail::RequireCpu(kernel, qkv, keys, values, out);
  detail::DispatchFloating(qkv.dtype, kernel, [&](auto type) {
    using T = decltype(type);
    Attend<T>(context, s, qkv.as<T>(), {keys.as<T>(), s.capacity, s.head_size},
              {values.as<T>(), s.capacity, s.head_size}, out.as<T>());
  });
}

}  // namespace ds
