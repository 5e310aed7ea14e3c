// Attention backward on tensor cores, in two kernels: one sums the queries' gradients over blocks of keys, the other
// the keys' and values' over blocks of queries. Both compute the probabilities anew, from log_sum_exp.
#include "kernels/cuda_attention_tiles.h"
#include "kernels/cuda_launch.h"

namespace ds::cuda {
namespace {

/// p = exp(scale * score - log_sum_exp) and its gradient dp -> dscore = p * (dp * factor - delta) * scale; p becomes
/// p * factor.
__device__ inline void Differentiate(float& p, float& dp, float scale, float log_sum_exp, float delta, bool seen,
                                     float factor) {
  const float probability = seen ? PowerOfTwo(__fmaf_rn(p, scale * kLog2E, -log_sum_exp * kLog2E)) : 0.0f;
  dp = seen ? probability * __fmaf_rn(dp, factor, -delta) * scale : 0.0f;
  p = probability * factor;
}

template <int kHead>
struct QueryGradient {
  static constexpr int kQueries = 64, kKeys = kHead <= 128 ? 64 : 32;
  static constexpr int kThreads = kQueries / 16 * kWarp;
  static constexpr int kStages = kHead <= 128 ? 2 : 1;
  template <class T>
  static constexpr int kSharedBytes = (2 * kQueries + kStages * 2 * kKeys) * TileStride<T>(kHead) *
                                      static_cast<int>(sizeof(T));
};

template <class T, int kHead, bool kPacked>
__global__ void __launch_bounds__(QueryGradient<kHead>::kThreads)
    QueryGradientKernel(AttentionLayout at, AttentionTensors<T> tensors, float scale) {
  using Sizes = QueryGradient<kHead>;
  constexpr int kQueries = Sizes::kQueries, kKeys = Sizes::kKeys, kThreads = Sizes::kThreads;
  constexpr int kStride = TileStride<T>(kHead), kTiles = kKeys / 8, kStages = Sizes::kStages;
  extern __shared__ __align__(16) unsigned char shared[];
  T* queries = reinterpret_cast<T*>(shared);
  T* douts = queries + kQueries * kStride;
  T* stages = douts + kQueries * kStride;  // of keys, then values

  const int blocks = BlocksOf(at.tokens, kQueries), id = static_cast<int>(blockIdx.x);
  const int begin = (blocks - 1 - id % blocks) * kQueries, head = id / blocks % at.heads;
  const int sample = id / blocks / at.heads, kv = head / at.Group();
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  const int first_row = begin + warp * 16 + lane / 4;
  const int64_t rows = at.Rows(sample, head);
  const HeadRows<const T> k{tensors.qkv + at.Slot(sample, at.heads + kv), at.token_stride};
  const HeadRows<const T> v{tensors.qkv + at.Slot(sample, at.heads + at.kv_heads + kv), at.token_stride};
  const int first_block = FirstKey<kPacked>(at, tensors.first_key, sample, begin) / kKeys;
  const int key_blocks = BlocksOf(min(at.tokens, begin + kQueries), kKeys);
  const auto load = [&](int block) {
    if (block < key_blocks) {
      T* stage = stages + block % kStages * 2 * kKeys * kStride;
      LoadTile<kKeys, kHead, kThreads>(stage, at, k, block * kKeys);
      LoadTile<kKeys, kHead, kThreads>(stage + kKeys * kStride, at, v, block * kKeys);
    }
    CommitCopies();
  };

  LoadTile<kQueries, kHead, kThreads>(queries, at,
                                      HeadRows<const T>{tensors.qkv + at.Slot(sample, head), at.token_stride}, begin);
  LoadTile<kQueries, kHead, kThreads>(douts, at, HeadRows<const T>{tensors.dout + at.Out(sample, head), at.out_stride},
                                      begin);
  for (int block = 0; block < kStages - 1; ++block) load(first_block + block);
  float log_sum_exp[2], delta[2];
  int first_key[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const bool valid = first_row + 8 * half < at.tokens;
    log_sum_exp[half] = valid ? tensors.log_sum_exp[rows + first_row + 8 * half] : 0.0f;
    delta[half] = valid ? tensors.delta[rows + first_row + 8 * half] : 0.0f;
    first_key[half] = FirstKey<kPacked>(at, tensors.first_key, sample, first_row + 8 * half);
  }

  float gradient[kHead / 8][4] = {};
  for (int block = first_block; block < key_blocks; ++block) {
    __syncthreads();  // nobody reads the stage that is filled next
    load(block + kStages - 1);
    WaitCopies<kStages - 1>();
    __syncthreads();
    const T* keys = stages + block % kStages * 2 * kKeys * kStride;
    float p[kTiles][4], dp[kTiles][4];
    MultiplyTransposed<kHead>(p, queries + warp * 16 * kStride, keys);
    MultiplyTransposed<kHead>(dp, douts + warp * 16 * kStride, keys + kKeys * kStride);
#pragma unroll
    for (int t = 0; t < kTiles; ++t)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int key = block * kKeys + t * 8 + lane % 4 * 2, row = first_row + 8 * half;
        const auto differentiate = [&](float first, float second) {
          const bool sees_first = key <= row && (!kPacked || key >= first_key[half]);
          const bool sees_second = key < row && (!kPacked || key + 1 >= first_key[half]);
          Differentiate(p[t][2 * half], dp[t][2 * half], scale, log_sum_exp[half], delta[half], sees_first, first);
          Differentiate(p[t][2 * half + 1], dp[t][2 * half + 1], scale, log_sum_exp[half], delta[half], sees_second,
                        second);
        };
        if (at.mask.active)
          ForPair(at.mask, at.Index(rows + row, key), differentiate);
        else
          differentiate(1.0f, 1.0f);
      }
    AddProduct<kStride>(gradient, ToLeftOperand<T>(dp), keys);
  }
  __syncthreads();
  StoreProduct(gradient, {1.0f, 1.0f}, queries + warp * 16 * kStride, at,
               HeadRows<T>{tensors.dqkv + at.Slot(sample, head), at.token_stride}, begin + warp * 16, 0);
}

template <int kHead>
struct KeyGradient {
  static constexpr int kKeys = 64, kQueries = kHead <= 64 ? 64 : 32;
  /// Columns of the gradients that a warp sums: all, or half of them where registers have no room for more.
  static constexpr int kColumns = kHead <= 128 ? kHead : kHead / 2;
  static constexpr int kThreads = kKeys / 16 * (kHead / kColumns) * kWarp;
  static constexpr int kStages = 2;
  template <class T>
  static constexpr int kTileBytes = (2 * kKeys + kStages * 2 * kQueries) * TileStride<T>(kHead) *
                                    static_cast<int>(sizeof(T));
  template <class T>
  static constexpr int kSharedBytes = kTileBytes<T> + kStages * 2 * kQueries* static_cast<int>(sizeof(float));
};

template <class T, int kHead, bool kPacked>
__global__ void __launch_bounds__(KeyGradient<kHead>::kThreads)
    KeyGradientKernel(AttentionLayout at, AttentionTensors<T> tensors, float scale) {
  using Sizes = KeyGradient<kHead>;
  constexpr int kQueries = Sizes::kQueries, kKeys = Sizes::kKeys, kThreads = Sizes::kThreads;
  constexpr int kStride = TileStride<T>(kHead), kTiles = kQueries / 8, kStages = Sizes::kStages;
  constexpr int kColumns = Sizes::kColumns;
  extern __shared__ __align__(16) unsigned char shared[];
  T* keys = reinterpret_cast<T*>(shared);
  T* values = keys + kKeys * kStride;
  T* stages = values + kKeys * kStride;  // of queries, then gradients of the outputs
  float* statistics = reinterpret_cast<float*>(shared + Sizes::template kTileBytes<T>);  // log_sum_exp, then delta

  // The first keys are seen by the most queries: blocks start with these.
  const int blocks = BlocksOf(at.tokens, kKeys), id = static_cast<int>(blockIdx.x);
  const int begin = id % blocks * kKeys, kv = id / blocks % at.kv_heads, sample = id / blocks / at.kv_heads;
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp_keys = warp % (kKeys / 16) * 16, warp_columns = warp / (kKeys / 16) * kColumns;
  const int first_key = begin + warp_keys + lane / 4;
  // Queries behind the last key's document see none of these keys.
  const int queries_end = QueriesEnd<kPacked>(at, tensors.first_key, sample, begin + kKeys - 1);
  const int key_end[2] = {QueriesEnd<kPacked>(at, tensors.first_key, sample, first_key),
                          QueriesEnd<kPacked>(at, tensors.first_key, sample, first_key + 8)};
  const int first_block = begin / kQueries, query_blocks = BlocksOf(queries_end, kQueries) - first_block;
  const int steps = at.Group() * query_blocks;  // all blocks of the group's first head, of its second, ...
  const auto head_of = [&](int step) { return kv * at.Group() + step / query_blocks; };
  const auto query_of = [&](int step) { return (first_block + step % query_blocks) * kQueries; };
  const auto load = [&](int step) {
    if (step < steps) {
      T* stage = stages + step % kStages * 2 * kQueries * kStride;
      float* numbers = statistics + step % kStages * 2 * kQueries;
      const int head = head_of(step), query = query_of(step);
      LoadTile<kQueries, kHead, kThreads>(
          stage, at, HeadRows<const T>{tensors.qkv + at.Slot(sample, head), at.token_stride}, query);
      LoadTile<kQueries, kHead, kThreads>(stage + kQueries * kStride, at,
                                          HeadRows<const T>{tensors.dout + at.Out(sample, head), at.out_stride}, query);
      for (int i = static_cast<int>(threadIdx.x); i < kQueries; i += kThreads) {
        const bool valid = query + i < at.tokens;
        // exp(-infinity): rows behind the tokens have probabilities of 0.
        numbers[i] = valid ? tensors.log_sum_exp[at.Rows(sample, head) + query + i] : INFINITY;
        numbers[kQueries + i] = valid ? tensors.delta[at.Rows(sample, head) + query + i] : 0.0f;
      }
    }
    CommitCopies();
  };

  LoadTile<kKeys, kHead, kThreads>(
      keys, at, HeadRows<const T>{tensors.qkv + at.Slot(sample, at.heads + kv), at.token_stride}, begin);
  LoadTile<kKeys, kHead, kThreads>(
      values, at, HeadRows<const T>{tensors.qkv + at.Slot(sample, at.heads + at.kv_heads + kv), at.token_stride},
      begin);
  for (int step = 0; step < kStages - 1; ++step) load(step);

  float dkey[kColumns / 8][4] = {}, dvalue[kColumns / 8][4] = {};
  for (int step = 0; step < steps; ++step) {
    __syncthreads();  // nobody reads the stage that is filled next
    load(step + kStages - 1);
    WaitCopies<kStages - 1>();
    __syncthreads();
    const T* queries = stages + step % kStages * 2 * kQueries * kStride;
    const T* douts = queries + kQueries * kStride;
    const float* numbers = statistics + step % kStages * 2 * kQueries;
    const int64_t rows = at.Rows(sample, head_of(step));
    float p[kTiles][4], dp[kTiles][4];  // transposed: keys x queries
    MultiplyTransposed<kHead>(p, keys + warp_keys * kStride, queries);
    MultiplyTransposed<kHead>(dp, values + warp_keys * kStride, douts);
#pragma unroll
    for (int t = 0; t < kTiles; ++t)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int column = t * 8 + lane % 4 * 2 + e % 2, row = query_of(step) + column, key = first_key + e / 2 * 8;
        const float factor = at.mask.active ? at.mask.Factor<float>(at.Index(rows + row, key)) : 1.0f;
        const bool seen = key <= row && (!kPacked || row < key_end[e / 2]);
        Differentiate(p[t][e], dp[t][e], scale, numbers[column], numbers[kQueries + column], seen, factor);
      }
    AddProduct<kStride>(dvalue, ToLeftOperand<T>(p), douts + warp_columns);
    AddProduct<kStride>(dkey, ToLeftOperand<T>(dp), queries + warp_columns);
  }

  __syncthreads();
  T* tile = keys + warp * 16 * TileStride<T>(kColumns);
  StoreProduct(dkey, {1.0f, 1.0f}, tile, at,
               HeadRows<T>{tensors.dqkv + at.Slot(sample, at.heads + kv), at.token_stride}, begin + warp_keys,
               warp_columns);
  __syncwarp();
  StoreProduct(dvalue, {1.0f, 1.0f}, tile, at,
               HeadRows<T>{tensors.dqkv + at.Slot(sample, at.heads + at.kv_heads + kv), at.token_stride},
               begin + warp_keys, warp_columns);
}

}  // namespace

template <class T>
void AttentionBackwardMma(cudaStream_t stream, const AttentionLayout& at, const AttentionTensors<T>& tensors) {
  const float scale = 1.0f / std::sqrt(static_cast<float>(at.head_size));
  DispatchHead(at.head_size, tensors.first_key, [&](auto width, auto packed) {
    using Queries = QueryGradient<width()>;
    using Keys = KeyGradient<width()>;
    const auto query_blocks = static_cast<unsigned>(at.batch * at.heads * BlocksOf(at.tokens, Queries::kQueries));
    const auto key_blocks = static_cast<unsigned>(at.batch * at.kv_heads * BlocksOf(at.tokens, Keys::kKeys));
    LaunchWithShared("AttentionBackward", KeyGradientKernel<T, width(), packed()>, key_blocks, Keys::kThreads,
                     Keys::template kSharedBytes<T>, stream, at, tensors, scale);
    LaunchWithShared("AttentionBackward", QueryGradientKernel<T, width(), packed()>, query_blocks, Queries::kThreads,
                     Queries::template kSharedBytes<T>, stream, at, tensors, scale);
  });
}
template void AttentionBackwardMma(cudaStream_t, const AttentionLayout&, const AttentionTensors<__nv_bfloat16>&);
template void AttentionBackwardMma(cudaStream_t, const AttentionLayout&, const AttentionTensors<__half>&);

}  // namespace ds::cuda
