// Attention on GPUs by kernels of our own: what their files share. attention_cuda.cu chooses between these and cuDNN.
// Internal to the GPU kernels.
//
// All of them work on blocks of queries and keys in shared memory and never store the scores (Dao 2023). Nothing is
// added atomically: a block of gradients is summed by one thread block, in the order of heads and of the other blocks,
// so that results are the same bits in every run.
#pragma once

#include "kernels/attention.h"
#include "kernels/cuda_check.h"
#include "kernels/cuda_types.h"
#include "kernels/philox.h"

namespace ds::cuda {

constexpr int64_t kLargestHead = 256;  ///< head size that our kernels know

/// The dropout of a call, as device code sees it.
struct AttentionMask {
  RandomStream stream;
  uint64_t first_row;  ///< index of row 0 among all samples' rows [samples, heads, T]
  uint32_t threshold;
  double scale;
  bool active;

  /// What probability `index` is multiplied by.
  template <class A>
  __device__ A Factor(uint64_t index) const {
    const detail::PhiloxWords words = detail::PhiloxBlock(stream, index / 4);
    const auto place = static_cast<int>(index % 4);
    const uint32_t bits = place == 0 ? words.v[0] : place == 1 ? words.v[1] : place == 2 ? words.v[2] : words.v[3];
    return bits >= threshold ? static_cast<A>(scale) : A(0);
  }
};

/// A call's shape and the strides of its tensors, in elements.
struct AttentionLayout {
  int batch, tokens, heads, kv_heads, head_size;
  int64_t token_stride, out_stride;
  bool aligned;  ///< rows of heads may be read and written 16 bytes at a time
  AttentionMask mask;

  __host__ __device__ int Group() const { return heads / kv_heads; }
  /// Element 0 of token 0 of a slot (heads queries, kv_heads keys, kv_heads values) of a sample in qkv.
  __device__ int64_t Slot(int sample, int slot) const {
    return static_cast<int64_t>(sample) * tokens * token_stride + static_cast<int64_t>(slot) * head_size;
  }
  __device__ int64_t Out(int sample, int head) const {
    return static_cast<int64_t>(sample) * tokens * out_stride + static_cast<int64_t>(head) * head_size;
  }
  /// Row 0 of a head in log_sum_exp.
  __device__ int64_t Rows(int sample, int head) const { return (static_cast<int64_t>(sample) * heads + head) * tokens; }
  /// Index of the probability of a row of log_sum_exp and a key.
  __device__ uint64_t Index(int64_t row, int key) const {
    return (mask.first_row + static_cast<uint64_t>(row)) * static_cast<uint64_t>(tokens) + static_cast<uint64_t>(key);
  }
};

/// The tensors of a call. delta: [B, heads, T], dout . out of each row. first_key: [B, T], or null. Those of the other
/// pass are null.
template <class T>
struct AttentionTensors {
  const T *qkv, *dout;
  T *out, *dqkv;
  Acc<T>*log_sum_exp, *delta;
  const int32_t* first_key;
};

// Kernels have a form for calls with first keys, kPacked, and one for those without, which these cost nothing.

/// The first key that a query of a sample sees; rows behind the tokens see all.
template <bool kPacked>
__device__ inline int FirstKey(const AttentionLayout& at, const int32_t* first_key, int sample, int row) {
  if constexpr (kPacked)
    return row < at.tokens ? max(first_key[static_cast<int64_t>(sample) * at.tokens + row], 0) : 0;
  else
    return 0;
}

/// Of the queries from `key` on, those before the one returned see the key: first keys never fall.
template <bool kPacked>
__device__ inline int QueriesEnd(const AttentionLayout& at, const int32_t* first_key, int sample, int key) {
  if constexpr (kPacked) {
    int low = min(key, at.tokens);
    const int32_t* of_sample = first_key + static_cast<int64_t>(sample) * at.tokens;
    for (int high = at.tokens; low < high;) {
      const int middle = low + (high - low) / 2;
      if (of_sample[middle] <= key)
        low = middle + 1;
      else
        high = middle;
    }
    return low;
  } else {
    return at.tokens;
  }
}

/// Elements of one head, a row a token, in global memory.
template <class T>
struct HeadRows {
  T* first;
  int64_t stride;
};

/// 16-bit dtypes: on tensor cores, summed in fp32 (attention_mma_*_cuda.cu).
template <class T>
void AttentionForwardMma(cudaStream_t stream, const AttentionLayout& at, const AttentionTensors<T>& tensors);
template <class T>
void AttentionBackwardMma(cudaStream_t stream, const AttentionLayout& at, const AttentionTensors<T>& tensors);

/// By warpgroups of Hopper (attention_wgmma_backward_cuda.cu). delta is written too. Only what WgmmaKnows, without
/// first keys.
template <class T>
void AttentionBackwardWgmma(cudaStream_t stream, const AttentionLayout& at, const AttentionTensors<T>& tensors);
bool WgmmaKnows(const AttentionLayout& at, DType dtype);

/// f32 and f64: by fused multiply-adds (attention_fma_cuda.cu).
template <class T>
void AttentionForwardFma(cudaStream_t stream, const AttentionLayout& at, const AttentionTensors<T>& tensors);
template <class T>
void AttentionBackwardFma(cudaStream_t stream, const AttentionLayout& at, const AttentionTensors<T>& tensors);

/// Blocks of `rows` tokens.
__host__ __device__ inline int BlocksOf(int tokens, int rows) { return (tokens + rows - 1) / rows; }

}  // namespace ds::cuda
