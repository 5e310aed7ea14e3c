#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/attention_blocks.h"
#include "kernels/convert.h"
#include "kernels/dispatch.h"
#include "kernels/dropout_mask.h"
#include "kernels/lanes.h"
#include "kernels/matmul.h"
#include "kernels/parallel.h"
#include "kernels/vector_math.h"
#include "kernels/widest.h"

namespace ds {
namespace {

using detail::Acc;
using detail::RowBlock;
using detail::RowBlocks;

/// Addresses and strides in the packed tensors.
template <class T>
struct Layout {
  AttentionShape s;
  int64_t group, token_stride, out_stride;  ///< query heads a KV head; elements a token

  explicit Layout(const AttentionShape& shape)
      : s(shape),
        group(shape.heads / shape.kv_heads),
        token_stride((shape.heads + 2 * shape.kv_heads) * shape.head_size),
        out_stride(shape.heads * shape.head_size) {}

  template <class U>
  U* Head(U* qkv, int64_t b, int64_t t, int64_t slot) const {
    return qkv + (b * s.tokens + t) * token_stride + slot * s.head_size;
  }
  template <class U>
  U* Query(U* qkv, int64_t b, int64_t t, int64_t h) const {
    return Head(qkv, b, t, h);
  }
  template <class U>
  U* Key(U* qkv, int64_t b, int64_t t, int64_t kv) const {
    return Head(qkv, b, t, s.heads + kv);
  }
  template <class U>
  U* Value(U* qkv, int64_t b, int64_t t, int64_t kv) const {
    return Head(qkv, b, t, s.heads + s.kv_heads + kv);
  }
  template <class U>
  U* Out(U* out, int64_t b, int64_t t, int64_t h) const {
    return out + (b * s.tokens + t) * out_stride + h * s.head_size;
  }
  int64_t RowIndex(int64_t b, int64_t h, int64_t t) const { return (b * s.heads + h) * s.tokens + t; }
  Acc<T> Scale() const { return Acc<T>(1) / std::sqrt(static_cast<Acc<T>>(s.head_size)); }
};

/// The mask of one row of probabilities, if there is dropout.
class RowDropout {
 public:
  RowDropout(const AttentionShape& shape, const AttentionDropout& dropout)
      : tokens_(static_cast<uint64_t>(shape.tokens)),
        first_row_(dropout.first_sample * static_cast<uint64_t>(shape.heads) * tokens_),
        stream_(dropout.stream),
        rule_(detail::MakeDropoutRule("Attention", dropout.p)),
        active_(dropout.p > 0) {}

  bool active() const { return active_; }

  /// use(begin, n, factors) for pieces of the `columns` columns from key `first_key` on of row `row` of the
  /// [B, heads, T] rows.
  template <class A, class Use>
  void ForPieces(int64_t row, int64_t first_key, int64_t columns, const Use& use) const {
    A factors[detail::kMaxFactors];
    const uint64_t first = (first_row_ + static_cast<uint64_t>(row)) * tokens_ + static_cast<uint64_t>(first_key);
    for (int64_t begin = 0; begin < columns; begin += detail::kMaxFactors) {
      const int64_t n = std::min(detail::kMaxFactors, columns - begin);
      detail::DropoutFactors(rule_, stream_, first + static_cast<uint64_t>(begin), factors, n);
      use(begin, n, factors);
    }
  }

 private:
  uint64_t tokens_, first_row_;
  RandomStream stream_;
  detail::DropoutRule rule_;
  bool active_;
};

/// Takes arrays off a thread's scratch memory, each aligned to 64 bytes.
class Carver {
 public:
  explicit Carver(std::byte* memory) : memory_(memory) {}
  template <class U>
  U* Take(int64_t n) {
    U* p = reinterpret_cast<U*>(memory_ + used_);
    used_ += Bytes<U>(n);
    return p;
  }
  template <class U>
  static int64_t Bytes(int64_t n) {
    return (n * static_cast<int64_t>(sizeof(U)) + 63) / 64 * 64;
  }

 private:
  std::byte* memory_;
  int64_t used_ = 0;
};

/// Elements of a block of scores, at most.
int64_t BlockElements(const AttentionShape& s) { return std::min(RowBlocks::kRows, s.tokens) * s.tokens; }

template <class T>
int64_t ForwardBytes(const AttentionShape& s) {
  const int64_t n = BlockElements(s);
  return Carver::Bytes<Acc<T>>(n) + (std::is_same_v<T, Acc<T>> ? 0 : Carver::Bytes<T>(n));
}

template <class T>
int64_t BackwardBytes(const AttentionShape& s) {
  return 2 * ForwardBytes<T>(s) + 2 * Carver::Bytes<Acc<T>>(s.tokens * s.head_size);
}

/// c[m, n] (+)= op(a) op(b), thin names for the products below.
template <class T, class C>
void Multiply(int64_t m, int64_t n, int64_t k, const T* a, int64_t lda, bool transpose_a, const T* b, int64_t ldb,
              bool transpose_b, C* c, int64_t ldc, bool accumulate) {
  MatMulBlock(DTypeOf<T>::value, DTypeOf<C>::value, m, n, k, a, lda, transpose_a, b, ldb, transpose_b, c, ldc,
              accumulate);
}

/// `seen` of a row's columns, rounded up to whole lanes where the row has them: loops then have no remainder. What they
/// compute behind `seen` counts for nothing.
int64_t WholeLanes(int64_t seen, int64_t columns) {
  return std::min(columns, (seen + detail::kLanes - 1) / detail::kLanes * detail::kLanes);
}

/// Turns the scores of a row that sees `seen` of `columns` columns, which are keys from `first_key` on, into
/// probabilities (0 behind `seen`), times the dropout factors, and returns log(sum exp(scale * score)). `out` may be
/// `scores`.
template <class T>
Acc<T> SoftmaxRow(Acc<T>* scores, int64_t first_key, int64_t seen, int64_t columns, Acc<T> scale,
                  const RowDropout& dropout, int64_t row, T* out) {
  using A = Acc<T>;
  const int64_t whole = WholeLanes(seen, columns);
  std::fill(scores + seen, scores + whole, -std::numeric_limits<A>::infinity());
  const A largest = detail::LaneMax(scores, whole);
  const A sum = detail::LaneSum<A>(whole, [=](int64_t j) {
    const A e = detail::Exp(scale * (scores[j] - largest));
    scores[j] = e;
    return e;
  });
  const A inverse = A(1) / sum;
#pragma omp simd
  for (int64_t j = 0; j < whole; ++j) scores[j] *= inverse;
  if (dropout.active())
    dropout.ForPieces<A>(row, first_key, seen, [=](int64_t begin, int64_t n, const A* factors) {
#pragma omp simd
      for (int64_t j = 0; j < n; ++j) scores[begin + j] *= factors[j];
    });
  detail::Convert(scores, out, seen);
  std::fill(out + seen, out + columns, T(0));
  return scale * largest + std::log(sum);
}

template <class T>
void ForwardBlock(const Layout<T>& at, int64_t b, int64_t h, RowBlock block, const T* qkv, const RowDropout& dropout,
                  T* out, Acc<T>* log_sum_exp, std::byte* scratch) {
  const int64_t size = at.s.head_size, n = block.columns, kv = h / at.group;
  Carver carver(scratch);
  Acc<T>* scores = carver.Take<Acc<T>>(block.rows * n);
  T* probabilities;
  if constexpr (std::is_same_v<T, Acc<T>>)
    probabilities = scores;
  else
    probabilities = carver.Take<T>(block.rows * n);
  Multiply(block.rows, n, size, at.Query(qkv, b, block.begin, h), at.token_stride, false,
           at.Key(qkv, b, block.first, kv), at.token_stride, true, scores, n, false);
  detail::Widest([&] {
    for (int64_t i = 0; i < block.rows; ++i) {
      const int64_t row = at.RowIndex(b, h, block.begin + i);
      log_sum_exp[row] = SoftmaxRow(scores + i * n, block.first, n - block.rows + i + 1, n, at.Scale(), dropout, row,
                                    probabilities + i * n);
    }
  });
  Multiply(block.rows, size, n, probabilities, n, false, at.Value(qkv, b, block.first, kv), at.token_stride, false,
           at.Out(out, b, block.begin, h), at.out_stride, false);
}

/// What a backward task works in.
template <class T>
struct BackwardScratch {
  Acc<T>*scores, *dprobabilities, *dkey, *dvalue;
  T *probabilities, *dscores;

  BackwardScratch(const AttentionShape& s, std::byte* memory) {
    Carver carver(memory);
    const int64_t n = BlockElements(s);
    scores = carver.Take<Acc<T>>(n), dprobabilities = carver.Take<Acc<T>>(n);
    dkey = carver.Take<Acc<T>>(s.tokens * s.head_size), dvalue = carver.Take<Acc<T>>(s.tokens * s.head_size);
    if constexpr (std::is_same_v<T, Acc<T>>)
      probabilities = scores, dscores = dprobabilities;
    else
      probabilities = carver.Take<T>(n), dscores = carver.Take<T>(n);
  }
};

/// One row: scores -> probabilities p (times dropout), and their gradient dp -> gradient of the scores
/// ds = p * (dp * factor - delta) * scale, where delta = sum_j p_j dp_j factor_j = dout . out.
template <class T>
void BackwardRow(Acc<T>* scores, Acc<T>* dprobabilities, int64_t first_key, int64_t seen, int64_t columns, Acc<T> scale,
                 Acc<T> lse, Acc<T> delta, const RowDropout& dropout, int64_t row, T* probabilities, T* dscores) {
  using A = Acc<T>;
  if (dropout.active()) {
    dropout.ForPieces<A>(row, first_key, seen, [=](int64_t begin, int64_t n, const A* factors) {
      A *s = scores + begin, *d = dprobabilities + begin;
#pragma omp simd
      for (int64_t j = 0; j < n; ++j) {
        const A p = detail::Exp(scale * s[j] - lse);
        d[j] = p * (d[j] * factors[j] - delta) * scale;
        s[j] = p * factors[j];
      }
    });
  } else {
    const int64_t whole = WholeLanes(seen, columns);
#pragma omp simd
    for (int64_t j = 0; j < whole; ++j) {
      const A p = detail::Exp(scale * scores[j] - lse);
      dprobabilities[j] = p * (dprobabilities[j] - delta) * scale;
      scores[j] = p;
    }
  }
  detail::Convert(scores, probabilities, seen);
  detail::Convert(dprobabilities, dscores, seen);
  std::fill(probabilities + seen, probabilities + columns, T(0));
  std::fill(dscores + seen, dscores + columns, T(0));
}

/// dout . out of one row of one head.
template <class T>
Acc<T> Dot(const T* a, const T* b, int64_t n) {
  using A = Acc<T>;
  A sum = 0;
  for (int64_t begin = 0; begin < n; begin += 256) {
    const int64_t piece = std::min<int64_t>(256, n - begin);
    A a_buffer[256], b_buffer[256];
    const A* l = detail::Load(a + begin, a_buffer, piece);
    const A* r = detail::Load(b + begin, b_buffer, piece);
    sum += detail::LaneSum<A>(piece, [=](int64_t i) { return l[i] * r[i]; });
  }
  return sum;
}

/// Writes the queries' gradient of a block and adds its part to the keys' and values' gradients in `w`.
template <class T>
void BackwardBlock(const Layout<T>& at, int64_t b, int64_t h, RowBlock block, const T* dout, const T* qkv, const T* out,
                   const Acc<T>* log_sum_exp, const RowDropout& dropout, T* dqkv, const BackwardScratch<T>& w) {
  const int64_t size = at.s.head_size, n = block.columns, rows = block.rows, kv = h / at.group;
  const T *q = at.Query(qkv, b, block.begin, h), *k = at.Key(qkv, b, block.first, kv);
  const T* v = at.Value(qkv, b, block.first, kv);
  Acc<T>*dkey = w.dkey + block.first * size, *dvalue = w.dvalue + block.first * size;
  const T *d = at.Out(dout, b, block.begin, h), *o = at.Out(out, b, block.begin, h);
  Multiply(rows, n, size, q, at.token_stride, false, k, at.token_stride, true, w.scores, n, false);
  Multiply(rows, n, size, d, at.out_stride, false, v, at.token_stride, true, w.dprobabilities, n, false);
  detail::Widest([&] {
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t row = at.RowIndex(b, h, block.begin + i);
      const Acc<T> delta = Dot(d + i * at.out_stride, o + i * at.out_stride, size);
      BackwardRow(w.scores + i * n, w.dprobabilities + i * n, block.first, n - rows + i + 1, n, at.Scale(),
                  log_sum_exp[row], delta, dropout, row, w.probabilities + i * n, w.dscores + i * n);
    }
  });
  Multiply(n, size, rows, w.probabilities, n, true, d, at.out_stride, false, dvalue, size, true);
  Multiply(n, size, rows, w.dscores, n, true, q, at.token_stride, false, dkey, size, true);
  Multiply(rows, size, n, w.dscores, n, false, k, at.token_stride, false, at.Query(dqkv, b, block.begin, h),
           at.token_stride, false);
}

void CheckShape(const char* kernel, const AttentionShape& s, const Tensor& qkv, const Tensor& out,
                const Tensor& log_sum_exp, const Tensor& first_key) {
  detail::Check(
      s.batch >= 0 && s.tokens >= 0 && s.head_size > 0 && s.kv_heads > 0 && s.heads > 0 && s.heads % s.kv_heads == 0,
      kernel,
      "batch " + std::to_string(s.batch) + ", tokens " + std::to_string(s.tokens) + ", heads " +
          std::to_string(s.heads) + ", kv_heads " + std::to_string(s.kv_heads) + ", head_size " +
          std::to_string(s.head_size) + ": sizes are positive and heads a multiple of kv_heads");
  detail::CheckFloating(kernel, "qkv", qkv);
  const int64_t rows = s.batch * s.tokens;
  detail::CheckVector(kernel, "qkv", qkv, qkv.dtype, rows * (s.heads + 2 * s.kv_heads) * s.head_size);
  detail::CheckVector(kernel, "out", out, qkv.dtype, rows * s.heads * s.head_size);
  detail::CheckVector(kernel, "log_sum_exp", log_sum_exp, detail::AccumulateType(qkv.dtype), rows * s.heads);
  detail::CheckFirstKey(kernel, s, first_key);
}

}  // namespace

void AttentionForward(const KernelContext& context, const AttentionShape& shape, Tensor qkv,
                      const AttentionDropout& dropout, Tensor out, Tensor log_sum_exp, Tensor first_key) {
  const char* kernel = "AttentionForward";
  CheckShape(kernel, shape, qkv, out, log_sum_exp, first_key);
  if (detail::RanOnCuda(kernel, cuda::AttentionForward, context, shape, qkv, dropout, out, log_sum_exp, first_key))
    return;
  const RowBlocks blocks(shape, first_key);
  const RowDropout mask(shape, dropout);
  detail::DispatchFloating(qkv.dtype, kernel, [&](auto type) {
    using T = decltype(type);
    const Layout<T> at(shape);
    detail::ParallelForWithScratch(context, shape.heads * blocks.count(), ForwardBytes<T>(shape),
                                   [&](int64_t i, std::byte* scratch) {
                                     const RowBlocks::Place place = blocks.At(i, shape.heads);
                                     ForwardBlock<T>(at, place.sample, place.head, place.block, qkv.as<T>(), mask,
                                                     out.as<T>(), log_sum_exp.as<Acc<T>>(), scratch);
                                   });
  });
}

void AttentionBackward(const KernelContext& context, const AttentionShape& shape, Tensor dout, Tensor qkv, Tensor out,
                       Tensor log_sum_exp, const AttentionDropout& dropout, Tensor dqkv, Tensor first_key) {
  const char* kernel = "AttentionBackward";
  CheckShape(kernel, shape, qkv, out, log_sum_exp, first_key);
  detail::CheckVector(kernel, "dout", dout, out.dtype, out.numel());
  detail::CheckVector(kernel, "dqkv", dqkv, qkv.dtype, qkv.numel());
  if (detail::RanOnCuda(kernel, cuda::AttentionBackward, context, shape, dout, qkv, out, log_sum_exp, dropout, dqkv,
                        first_key))
    return;
  const RowBlocks blocks(shape, first_key);
  const RowDropout mask(shape, dropout);
  detail::DispatchFloating(qkv.dtype, kernel, [&](auto type) {
    using T = decltype(type);
    const Layout<T> at(shape);
    // A task is a KV head: the gradients of its keys and values are summed over query heads and blocks in order.
    detail::ParallelForWithScratch(
        context, shape.batch * shape.kv_heads, BackwardBytes<T>(shape), [&](int64_t task, std::byte* scratch) {
          const int64_t b = task / shape.kv_heads, kv = task % shape.kv_heads, n = shape.tokens * shape.head_size;
          const BackwardScratch<T> w(shape, scratch);
          std::fill_n(w.dkey, n, Acc<T>(0));
          std::fill_n(w.dvalue, n, Acc<T>(0));
          for (int64_t h = kv * at.group; h < (kv + 1) * at.group; ++h)
            for (const RowBlock& block : blocks.Of(b))
              BackwardBlock<T>(at, b, h, block, dout.as<T>(), qkv.as<T>(), out.as<T>(), log_sum_exp.as<Acc<T>>(), mask,
                               dqkv.as<T>(), w);
          for (int64_t t = 0; t < shape.tokens; ++t) {
            detail::Convert(w.dkey + t * shape.head_size, at.Key(dqkv.as<T>(), b, t, kv), shape.head_size);
            detail::Convert(w.dvalue + t * shape.head_size, at.Value(dqkv.as<T>(), b, t, kv), shape.head_size);
          }
        });
  });
}

int64_t AttentionScratchBytes(const AttentionShape& shape, DType dtype, int threads) {
  int64_t bytes = 0;
  detail::DispatchFloating(dtype, "AttentionScratchBytes",
                           [&](auto type) { bytes = BackwardBytes<decltype(type)>(shape); });
  return bytes * std::max(1, threads);
}

}  // namespace ds
