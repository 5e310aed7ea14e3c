// Attention in f32 and f64, forward and backward, by fused multiply-adds: eight threads have a row of queries or keys.
// The CPU's formulas (attention_cpu.cc), block by block.
#include "kernels/cuda_attention_tiles.h"
#include "kernels/cuda_launch.h"

namespace ds::cuda {
namespace {

constexpr int kLanes = 8;  ///< threads of a row

template <class T>
constexpr int kRows = 128 / static_cast<int>(sizeof(T));  ///< of a tile; a thread block's too
template <class T>
constexpr int kThreads = kRows<T>* kLanes;

__device__ inline int Row() { return static_cast<int>(threadIdx.x) / kLanes; }
__device__ inline int Lane() { return static_cast<int>(threadIdx.x) % kLanes; }

/// Sums of a row over kHead columns: this thread's are 32 c + 4 Lane() + {0, 1, 2, 3}.
template <class T, int kHead>
using RowSums = T[kHead / 32][4];

/// A tile of a head's rows, [kRows, kHead], loaded whole.
template <int kHead, class T>
__device__ inline void Load(T* tile, const AttentionLayout& at, HeadRows<const T> head, int begin) {
  LoadTile<kRows<T>, kHead, kThreads<T>>(tile, at, head, begin);
  CommitCopies();
}

__device__ inline void FinishLoads() {
  WaitCopies<0>();
  __syncthreads();
}

/// dots[i] = this thread's row of `left` times row Lane() + 8 i of `right`.
template <int kHead, class T>
__device__ inline void DotRows(T (&dots)[kRows<T> / kLanes], const T* left, const T* right, int head_size) {
  constexpr int kStride = TileStride<T>(kHead);
#pragma unroll
  for (T& dot : dots) dot = 0;
  for (int d = 0; d < head_size; d += 4) {
    const Pack<T, 4> a = LoadRaw<4>(left + Row() * kStride + d);
#pragma unroll
    for (int i = 0; i < kRows<T> / kLanes; ++i) {
      const Pack<T, 4> b = LoadRaw<4>(right + (Lane() + kLanes * i) * kStride + d);
#pragma unroll
      for (int e = 0; e < 4; ++e) dots[i] = fma(a[e], b[e], dots[i]);
    }
  }
}

/// sums += sum_j weights[this thread's row][j] * right[j].
template <int kHead, class T>
__device__ inline void AddRows(RowSums<T, kHead>& sums, const T* weights, const T* right) {
  for (int j = 0; j < kRows<T>; ++j) {
    const T weight = weights[Row() * TileStride<T>(kRows<T>) + j];
#pragma unroll
    for (int c = 0; c < kHead / 32; ++c) {
      const Pack<T, 4> b = LoadRaw<4>(right + j * TileStride<T>(kHead) + 32 * c + 4 * Lane());
#pragma unroll
      for (int e = 0; e < 4; ++e) sums[c][e] = fma(weight, b[e], sums[c][e]);
    }
  }
}

template <int kHead, class T>
__device__ inline void StoreRow(const RowSums<T, kHead>& sums, T divisor, const AttentionLayout& at, HeadRows<T> head,
                                int row) {
  if (row >= at.tokens) return;
#pragma unroll
  for (int c = 0; c < kHead / 32; ++c)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int column = 32 * c + 4 * Lane() + e;
      if (column < at.head_size) head.first[row * head.stride + column] = sums[c][e] / divisor;
    }
}

/// Bytes of `tiles` tiles and `weights` matrices of weights.
template <class T, int kHead>
constexpr int SharedBytes(int tiles, int weights) {
  return kRows<T> * (tiles * TileStride<T>(kHead) + weights * TileStride<T>(kRows<T>)) * static_cast<int>(sizeof(T));
}

/// The first tile of keys that a tile of queries sees: its first query sees the most.
template <class T, bool kPacked>
__device__ inline int FirstTile(const AttentionLayout& at, const int32_t* first_key, int sample, int begin) {
  return FirstKey<kPacked>(at, first_key, sample, begin) / kRows<T> * kRows<T>;
}

template <class T, int kHead, bool kPacked>
__global__ void __launch_bounds__(kThreads<T>) ForwardKernel(AttentionLayout at, AttentionTensors<T> tensors, T scale) {
  constexpr int kTile = kRows<T> * TileStride<T>(kHead), kDots = kRows<T> / kLanes;
  extern __shared__ __align__(16) unsigned char shared[];
  T *queries = reinterpret_cast<T*>(shared), *others = queries + kTile, *weights = others + kTile;
  const int blocks = BlocksOf(at.tokens, kRows<T>), id = static_cast<int>(blockIdx.x);
  const int begin = (blocks - 1 - id % blocks) * kRows<T>, head = id / blocks % at.heads;
  const int sample = id / blocks / at.heads, kv = head / at.Group(), row = begin + Row();
  const HeadRows<const T> q{tensors.qkv + at.Slot(sample, head), at.token_stride};
  const HeadRows<const T> k{tensors.qkv + at.Slot(sample, at.heads + kv), at.token_stride};
  const HeadRows<const T> v{tensors.qkv + at.Slot(sample, at.heads + at.kv_heads + kv), at.token_stride};

  Load<kHead>(queries, at, q, begin);
  const int first_key = FirstKey<kPacked>(at, tensors.first_key, sample, row);
  RowSums<T, kHead> out = {};
  T largest = -INFINITY, sum = 0;
  for (int key = FirstTile<T, kPacked>(at, tensors.first_key, sample, begin); key < min(at.tokens, begin + kRows<T>);
       key += kRows<T>) {
    Load<kHead>(others, at, k, key);
    FinishLoads();
    T p[kDots], top = largest, added = 0;
    DotRows<kHead>(p, queries, others, at.head_size);
#pragma unroll
    for (int i = 0; i < kDots; ++i) {
      const int column = key + Lane() + kLanes * i;
      if (column > row || (kPacked && column < first_key)) p[i] = -INFINITY;
      top = fmax(top, p[i]);
    }
#pragma unroll
    for (int step = 1; step < kLanes; step *= 2) top = fmax(top, __shfl_xor_sync(~0u, top, step));
    // A row may see no key of the first tiles: those before its document's.
    const T base = kPacked && top == -INFINITY ? T(0) : top;
    const T correction = exp(scale * (largest - base));
    largest = top;
#pragma unroll
    for (int i = 0; i < kDots; ++i) {
      p[i] = exp(scale * (p[i] - base));
      added += p[i];
      const int column = Lane() + kLanes * i;
      const T factor = at.mask.active ? at.mask.Factor<T>(at.Index(at.Rows(sample, head) + row, key + column)) : T(1);
      weights[Row() * TileStride<T>(kRows<T>) + column] = p[i] * factor;
    }
    sum = sum * correction + added;
    for (auto& four : out)
      for (T& x : four) x *= correction;
    __syncthreads();
    Load<kHead>(others, at, v, key);
    FinishLoads();
    AddRows<kHead>(out, weights, others);
    __syncthreads();
  }
#pragma unroll
  for (int step = 1; step < kLanes; step *= 2) sum += __shfl_xor_sync(~0u, sum, step);
  if (Lane() == 0 && row < at.tokens) tensors.log_sum_exp[at.Rows(sample, head) + row] = scale * largest + log(sum);
  StoreRow<kHead>(out, sum, at, HeadRows<T>{tensors.out + at.Out(sample, head), at.out_stride}, row);
}

/// p = exp(scale * score - log_sum_exp), and of its gradient dp the score's, p * (dp * factor - delta) * scale, in dp;
/// p becomes p * factor.
template <class T>
__device__ inline void Differentiate(T& p, T& dp, T scale, T log_sum_exp, T delta, bool seen, T factor) {
  const T probability = seen ? exp(scale * p - log_sum_exp) : T(0);
  dp = seen ? probability * (dp * factor - delta) * scale : T(0);
  p = probability * factor;
}

template <class T, int kHead, bool kPacked>
__global__ void __launch_bounds__(kThreads<T>)
    QueryGradientKernel(AttentionLayout at, AttentionTensors<T> tensors, T scale) {
  constexpr int kTile = kRows<T> * TileStride<T>(kHead), kDots = kRows<T> / kLanes;
  extern __shared__ __align__(16) unsigned char shared[];
  T *queries = reinterpret_cast<T*>(shared), *douts = queries + kTile, *keys = douts + kTile, *values = keys + kTile;
  T* weights = values + kTile;
  const int blocks = BlocksOf(at.tokens, kRows<T>), id = static_cast<int>(blockIdx.x);
  const int begin = (blocks - 1 - id % blocks) * kRows<T>, head = id / blocks % at.heads;
  const int sample = id / blocks / at.heads, kv = head / at.Group(), row = begin + Row();
  const HeadRows<const T> k{tensors.qkv + at.Slot(sample, at.heads + kv), at.token_stride};
  const HeadRows<const T> v{tensors.qkv + at.Slot(sample, at.heads + at.kv_heads + kv), at.token_stride};

  Load<kHead>(queries, at, HeadRows<const T>{tensors.qkv + at.Slot(sample, head), at.token_stride}, begin);
  Load<kHead>(douts, at, HeadRows<const T>{tensors.dout + at.Out(sample, head), at.out_stride}, begin);
  const int64_t index = at.Rows(sample, head) + row;
  const T log_sum_exp = row < at.tokens ? tensors.log_sum_exp[index] : T(0);
  const T delta = row < at.tokens ? tensors.delta[index] : T(0);
  const int first_key = FirstKey<kPacked>(at, tensors.first_key, sample, row);
  RowSums<T, kHead> gradient = {};
  for (int key = FirstTile<T, kPacked>(at, tensors.first_key, sample, begin); key < min(at.tokens, begin + kRows<T>);
       key += kRows<T>) {
    Load<kHead>(keys, at, k, key);
    Load<kHead>(values, at, v, key);
    FinishLoads();
    T p[kDots], dp[kDots];
    DotRows<kHead>(p, queries, keys, at.head_size);
    DotRows<kHead>(dp, douts, values, at.head_size);
#pragma unroll
    for (int i = 0; i < kDots; ++i) {
      const int column = Lane() + kLanes * i;
      const T factor = at.mask.active ? at.mask.Factor<T>(at.Index(index, key + column)) : T(1);
      const bool seen = key + column <= row && (!kPacked || key + column >= first_key);
      Differentiate(p[i], dp[i], scale, log_sum_exp, delta, seen, factor);
      weights[Row() * TileStride<T>(kRows<T>) + column] = dp[i];
    }
    __syncwarp();
    AddRows<kHead>(gradient, weights, keys);
    __syncthreads();
  }
  StoreRow<kHead>(gradient, T(1), at, HeadRows<T>{tensors.dqkv + at.Slot(sample, head), at.token_stride}, row);
}

template <class T, int kHead, bool kPacked>
__global__ void __launch_bounds__(kThreads<T>)
    KeyGradientKernel(AttentionLayout at, AttentionTensors<T> tensors, T scale) {
  constexpr int kTile = kRows<T> * TileStride<T>(kHead), kDots = kRows<T> / kLanes;
  extern __shared__ __align__(16) unsigned char shared[];
  T *keys = reinterpret_cast<T*>(shared), *values = keys + kTile, *queries = values + kTile, *douts = queries + kTile;
  T *weights = douts + kTile, *dweights = weights + kRows<T> * TileStride<T>(kRows<T>);
  const int blocks = BlocksOf(at.tokens, kRows<T>), id = static_cast<int>(blockIdx.x);
  const int begin = id % blocks * kRows<T>, kv = id / blocks % at.kv_heads, sample = id / blocks / at.kv_heads;
  const int key = begin + Row();
  const int64_t key_slot = at.Slot(sample, at.heads + kv), value_slot = at.Slot(sample, at.heads + at.kv_heads + kv);

  Load<kHead>(keys, at, HeadRows<const T>{tensors.qkv + key_slot, at.token_stride}, begin);
  Load<kHead>(values, at, HeadRows<const T>{tensors.qkv + value_slot, at.token_stride}, begin);
  const int end = QueriesEnd<kPacked>(at, tensors.first_key, sample, key);
  const int last_end = QueriesEnd<kPacked>(at, tensors.first_key, sample, begin + kRows<T> - 1);
  RowSums<T, kHead> dkey = {}, dvalue = {};
  for (int head = kv * at.Group(); head < (kv + 1) * at.Group(); ++head)
    for (int query = begin; query < last_end; query += kRows<T>) {
      Load<kHead>(queries, at, HeadRows<const T>{tensors.qkv + at.Slot(sample, head), at.token_stride}, query);
      Load<kHead>(douts, at, HeadRows<const T>{tensors.dout + at.Out(sample, head), at.out_stride}, query);
      FinishLoads();
      T p[kDots], dp[kDots];  // of this thread's key and some queries
      DotRows<kHead>(p, keys, queries, at.head_size);
      DotRows<kHead>(dp, values, douts, at.head_size);
#pragma unroll
      for (int i = 0; i < kDots; ++i) {
        const int column = Lane() + kLanes * i, row = query + column;
        const int64_t index = at.Rows(sample, head) + row;
        const bool seen = row < end && key <= row;
        const T factor = at.mask.active ? at.mask.Factor<T>(at.Index(index, key)) : T(1);
        Differentiate(p[i], dp[i], scale, seen ? tensors.log_sum_exp[index] : T(0), seen ? tensors.delta[index] : T(0),
                      seen, factor);
        weights[Row() * TileStride<T>(kRows<T>) + column] = p[i];
        dweights[Row() * TileStride<T>(kRows<T>) + column] = dp[i];
      }
      __syncwarp();
      AddRows<kHead>(dvalue, weights, douts);
      AddRows<kHead>(dkey, dweights, queries);
      __syncthreads();
    }
  StoreRow<kHead>(dkey, T(1), at, HeadRows<T>{tensors.dqkv + key_slot, at.token_stride}, key);
  StoreRow<kHead>(dvalue, T(1), at, HeadRows<T>{tensors.dqkv + value_slot, at.token_stride}, key);
}

template <class T>
T ScaleOf(const AttentionLayout& at) {
  return T(1) / std::sqrt(static_cast<T>(at.head_size));
}

}  // namespace

template <class T>
void AttentionForwardFma(cudaStream_t stream, const AttentionLayout& at, const AttentionTensors<T>& tensors) {
  DispatchHead(at.head_size, tensors.first_key, [&](auto width, auto packed) {
    const auto blocks = static_cast<unsigned>(at.batch * at.heads * BlocksOf(at.tokens, kRows<T>));
    LaunchWithShared("AttentionForward", ForwardKernel<T, width(), packed()>, blocks, kThreads<T>,
                     SharedBytes<T, width()>(2, 1), stream, at, tensors, ScaleOf<T>(at));
  });
}
template void AttentionForwardFma(cudaStream_t, const AttentionLayout&, const AttentionTensors<float>&);
template void AttentionForwardFma(cudaStream_t, const AttentionLayout&, const AttentionTensors<double>&);

template <class T>
void AttentionBackwardFma(cudaStream_t stream, const AttentionLayout& at, const AttentionTensors<T>& tensors) {
  DispatchHead(at.head_size, tensors.first_key, [&](auto width, auto packed) {
    const auto blocks = static_cast<unsigned>(at.batch * BlocksOf(at.tokens, kRows<T>));
    LaunchWithShared("AttentionBackward", KeyGradientKernel<T, width(), packed()>,
                     blocks * static_cast<unsigned>(at.kv_heads), kThreads<T>, SharedBytes<T, width()>(4, 2), stream,
                     at, tensors, ScaleOf<T>(at));
    LaunchWithShared("AttentionBackward", QueryGradientKernel<T, width(), packed()>,
                     blocks * static_cast<unsigned>(at.heads), kThreads<T>, SharedBytes<T, width()>(4, 1), stream, at,
                     tensors, ScaleOf<T>(at));
  });
}
template void AttentionBackwardFma(cudaStream_t, const AttentionLayout&, const AttentionTensors<float>&);
template void AttentionBackwardFma(cudaStream_t, const AttentionLayout&, const AttentionTensors<double>&);

}  // namespace ds::cuda
