// Attention forward on tensor cores: a thread block has a block of queries of one head, a warp 16 of them.
#include "kernels/cuda_attention_tiles.h"
#include "kernels/cuda_launch.h"

namespace ds::cuda {
namespace {

template <int kHead>
struct Forward {
  static constexpr int kQueries = 64, kKeys = kHead <= 128 ? 64 : 32;
  static constexpr int kThreads = kQueries / 16 * kWarp;
  template <class T>
  static constexpr int kSharedBytes = (kQueries + 2 * kKeys) * TileStride<T>(kHead) * static_cast<int>(sizeof(T));
};

/// The largest score and the sum of the exponentials of a lane's two rows so far.
struct RunningSoftmax {
  float largest[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};

  /// Turns scores into exp(scale * (score - largest)); the products of former blocks are scaled to the new largest.
  /// kPacked: a row may see no key of the first blocks, those before its document's.
  template <bool kPacked, int kTiles, int kOutTiles>
  __device__ void Update(float (&scores)[kTiles][4], float log2_scale, float (&out)[kOutTiles][4]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float top = largest[half];
#pragma unroll
      for (int t = 0; t < kTiles; ++t) top = fmaxf(top, fmaxf(scores[t][2 * half], scores[t][2 * half + 1]));
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
      const float base = kPacked && top == -INFINITY ? 0.0f : top;
      const float correction = PowerOfTwo((largest[half] - base) * log2_scale), offset = -base * log2_scale;
      largest[half] = top;
      float added = 0;
#pragma unroll
      for (int t = 0; t < kTiles; ++t)
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) {
          scores[t][e] = PowerOfTwo(__fmaf_rn(scores[t][e], log2_scale, offset));
          added += scores[t][e];
        }
      sum[half] = __fmaf_rn(sum[half], correction, added);
#pragma unroll
      for (int t = 0; t < kOutTiles; ++t) {
        out[t][2 * half] *= correction;
        out[t][2 * half + 1] *= correction;
      }
    }
  }

  /// Adds up the parts of the sums that the four lanes of a row have.
  __device__ void Finish() {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      sum[half] += __shfl_xor_sync(~0u, sum[half], 1);
      sum[half] += __shfl_xor_sync(~0u, sum[half], 2);
    }
  }
};

template <class T, int kHead, bool kPacked>
__global__ void __launch_bounds__(Forward<kHead>::kThreads)
    ForwardKernel(AttentionLayout at, AttentionTensors<T> tensors, float scale) {
  using Sizes = Forward<kHead>;
  constexpr int kQueries = Sizes::kQueries, kKeys = Sizes::kKeys, kThreads = Sizes::kThreads;
  constexpr int kStride = TileStride<T>(kHead), kTiles = kKeys / 8;
  extern __shared__ __align__(16) unsigned char shared[];
  T* queries = reinterpret_cast<T*>(shared);
  T* keys = queries + kQueries * kStride;
  T* values = keys + kKeys * kStride;

  // The longest rows first: they take the longest.
  const int blocks = BlocksOf(at.tokens, kQueries), id = static_cast<int>(blockIdx.x);
  const int begin = (blocks - 1 - id % blocks) * kQueries, head = id / blocks % at.heads;
  const int sample = id / blocks / at.heads, kv = head / at.Group();
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  const int first_row = begin + warp * 16 + lane / 4;
  // Keys are seen from the first one of the block's first row on; `alike`: from here on all rows see them.
  const int end = min(at.tokens, begin + kQueries);
  const int first_block = FirstKey<kPacked>(at, tensors.first_key, sample, begin) / kKeys * kKeys;
  const int alike = FirstKey<kPacked>(at, tensors.first_key, sample, end - 1);
  const int first_key[2] = {FirstKey<kPacked>(at, tensors.first_key, sample, first_row),
                            FirstKey<kPacked>(at, tensors.first_key, sample, first_row + 8)};
  const HeadRows<const T> k{tensors.qkv + at.Slot(sample, at.heads + kv), at.token_stride};
  const HeadRows<const T> v{tensors.qkv + at.Slot(sample, at.heads + at.kv_heads + kv), at.token_stride};

  LoadTile<kQueries, kHead, kThreads>(queries, at,
                                      HeadRows<const T>{tensors.qkv + at.Slot(sample, head), at.token_stride}, begin);
  LoadTile<kKeys, kHead, kThreads>(keys, at, k, first_block);
  CommitCopies();

  float out[kHead / 8][4] = {};
  RunningSoftmax softmax;
  for (int key = first_block; key < end; key += kKeys) {
    WaitCopies<0>();
    __syncthreads();  // the keys are here, and nobody reads the former values any more
    LoadTile<kKeys, kHead, kThreads>(values, at, v, key);
    CommitCopies();
    float scores[kTiles][4];
    MultiplyTransposed<kHead>(scores, queries + warp * 16 * kStride, keys);
    if (key + kKeys > begin || (kPacked && key < alike)) {
#pragma unroll
      for (int t = 0; t < kTiles; ++t)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int column = key + t * 8 + lane % 4 * 2 + e % 2;
          if (column > first_row + e / 2 * 8 || (kPacked && column < first_key[e / 2])) scores[t][e] = -INFINITY;
        }
    }
    softmax.Update<kPacked>(scores, scale * kLog2E, out);
    if (at.mask.active) {
#pragma unroll
      for (int t = 0; t < kTiles; ++t)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          ForPair(at.mask, at.Index(at.Rows(sample, head) + first_row + 8 * half, key + t * 8 + lane % 4 * 2),
                  [&](float first, float second) {
                    scores[t][2 * half] *= first;
                    scores[t][2 * half + 1] *= second;
                  });
    }
    WaitCopies<0>();
    __syncthreads();  // the values are here, and nobody reads the keys any more
    if (key + kKeys < end) {
      LoadTile<kKeys, kHead, kThreads>(keys, at, k, key + kKeys);
      CommitCopies();
    }
    AddProduct<kStride>(out, ToLeftOperand<T>(scores), values);
  }

  softmax.Finish();
  const float factor[2] = {1 / softmax.sum[0], 1 / softmax.sum[1]};
  if (lane % 4 == 0) {
#pragma unroll
    for (int half = 0; half < 2; ++half)
      if (first_row + 8 * half < at.tokens)
        tensors.log_sum_exp[at.Rows(sample, head) + first_row + 8 * half] =
            __fmaf_rn(scale, softmax.largest[half], logf(softmax.sum[half]));
  }
  StoreProduct(out, factor, queries + warp * 16 * kStride, at,
               HeadRows<T>{tensors.out + at.Out(sample, head), at.out_stride}, begin + warp * 16, 0);
}

}  // namespace

template <class T>
void AttentionForwardMma(cudaStream_t stream, const AttentionLayout& at, const AttentionTensors<T>& tensors) {
  DispatchHead(at.head_size, tensors.first_key, [&](auto width, auto packed) {
    using Sizes = Forward<width()>;
    const auto blocks = static_cast<unsigned>(at.batch * at.heads * BlocksOf(at.tokens, Sizes::kQueries));
    LaunchWithShared("AttentionForward", ForwardKernel<T, width(), packed()>, blocks, Sizes::kThreads,
                     Sizes::template kSharedBytes<T>, stream, at, tensors,
                     1.0f / std::sqrt(static_cast<float>(at.head_size)));
  });
}
template void AttentionForwardMma(cudaStream_t, const AttentionLayout&, const AttentionTensors<__nv_bfloat16>&);
template void AttentionForwardMma(cudaStream_t, const AttentionLayout&, const AttentionTensors<__half>&);

}  // namespace ds::cuda
