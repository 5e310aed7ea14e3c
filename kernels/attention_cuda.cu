#include "kernels/attention_paths.h"
#include "kernels/cuda_attention.h"
#include "kernels/dropout_rule.h"
#include "kernels/workspace.h"

namespace ds::cuda {
namespace {

constexpr int kDeltaThreads = 256;

/// delta = dout . out of each row, by a warp.
template <class T>
__global__ void __launch_bounds__(kDeltaThreads) DeltaKernel(AttentionLayout at, AttentionTensors<T> tensors) {
  using A = Acc<T>;
  const int64_t row = (static_cast<int64_t>(blockIdx.x) * kDeltaThreads + threadIdx.x) / 32;  // of [B, T, heads]
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int head = static_cast<int>(row % at.heads);
  const int64_t token = row / at.heads;
  if (token >= static_cast<int64_t>(at.batch) * at.tokens) return;
  A sum = 0;
  for (int64_t i = row * at.head_size + lane; i < (row + 1) * at.head_size; i += 32)
    sum = fma(Converted<A>(tensors.dout[i]), Converted<A>(tensors.out[i]), sum);
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  if (lane == 0) tensors.delta[at.Rows(static_cast<int>(token / at.tokens), head) + token % at.tokens] = sum;
}

/// Throws std::invalid_argument when our kernels do not know the shape.
AttentionLayout LayoutOf(const char* kernel, const AttentionShape& s, const AttentionDropout& dropout, DType dtype,
                         bool aligned) {
  detail::Check(s.head_size <= kLargestHead, kernel,
                "head_size " + std::to_string(s.head_size) + " on a GPU, at most " + std::to_string(kLargestHead));
  detail::Check(s.batch * s.heads * s.tokens <= INT32_MAX, kernel,
                "batch * heads * tokens is " + std::to_string(s.batch * s.heads * s.tokens) +
                    " on a GPU, at most 2^31 - 1: use a smaller micro-batch");
  const detail::DropoutRule rule = detail::MakeDropoutRule(kernel, dropout.p);
  AttentionLayout at{};
  at.batch = static_cast<int>(s.batch);
  at.tokens = static_cast<int>(s.tokens);
  at.heads = static_cast<int>(s.heads);
  at.kv_heads = static_cast<int>(s.kv_heads);
  at.head_size = static_cast<int>(s.head_size);
  at.token_stride = (s.heads + 2 * s.kv_heads) * s.head_size;
  at.out_stride = s.heads * s.head_size;
  at.aligned = aligned && s.head_size * static_cast<int64_t>(SizeOf(dtype)) % 16 == 0;
  at.mask = {dropout.stream, dropout.first_sample * static_cast<uint64_t>(s.heads * s.tokens), rule.threshold,
             rule.scale, dropout.p > 0};
  return at;
}

/// Null where there are none.
const int32_t* FirstKeys(const Tensor& first_key) { return first_key ? Elements<int32_t>(first_key) : nullptr; }

}  // namespace

void OwnAttentionForward(const KernelContext& context, const AttentionShape& shape, Tensor qkv,
                         const AttentionDropout& dropout, Tensor out, Tensor log_sum_exp, Tensor first_key) {
  const AttentionLayout at = LayoutOf("AttentionForward", shape, dropout, qkv.dtype, Aligned(qkv.data, out.data));
  if (qkv.numel() == 0) return;
  DispatchFloating(qkv.dtype, "AttentionForward", [&](auto type) {
    using T = decltype(type);
    const AttentionTensors<T> tensors{
        Elements<T>(qkv),    nullptr, Elements<T>(out), nullptr, Elements<Acc<T>>(log_sum_exp), nullptr,
        FirstKeys(first_key)};
    if constexpr (std::is_same_v<T, Acc<T>>)
      AttentionForwardFma(Stream(context), at, tensors);
    else
      AttentionForwardMma(Stream(context), at, tensors);
  });
}

void OwnAttentionBackward(const KernelContext& context, const AttentionShape& shape, Tensor dout, Tensor qkv,
                          Tensor out, Tensor log_sum_exp, const AttentionDropout& dropout, Tensor dqkv,
                          Tensor first_key) {
  const char* kernel = "AttentionBackward";
  const AttentionLayout at =
      LayoutOf(kernel, shape, dropout, qkv.dtype, Aligned(dout.data, qkv.data, out.data, dqkv.data));
  if (qkv.numel() == 0) return;
  DispatchFloating(qkv.dtype, kernel, [&](auto type) {
    using T = decltype(type);
    const int64_t rows = shape.batch * shape.heads * shape.tokens;
    const AttentionTensors<T> tensors{Elements<T>(qkv),
                                      Elements<T>(dout),
                                      Elements<T>(out),
                                      Elements<T>(dqkv),
                                      Elements<Acc<T>>(log_sum_exp),
                                      Workspace<Acc<T>>(context, kernel, rows * static_cast<int64_t>(sizeof(Acc<T>))),
                                      FirstKeys(first_key)};
    DeltaKernel<<<static_cast<unsigned>((rows * 32 + kDeltaThreads - 1) / kDeltaThreads), kDeltaThreads, 0,
                  Stream(context)>>>(at, tensors);
    CheckLaunch(kernel);
    if constexpr (std::is_same_v<T, Acc<T>>)
      AttentionBackwardFma(Stream(context), at, tensors);
    else
      AttentionBackwardMma(Stream(context), at, tensors);
  });
}

bool WgmmaAttentionBackward(const KernelContext& context, const AttentionShape& shape, Tensor dout, Tensor qkv,
                            Tensor out, Tensor log_sum_exp, const AttentionDropout& dropout, Tensor dqkv) {
  const char* kernel = "AttentionBackward";
  const int64_t rows = shape.batch * shape.heads * shape.tokens;
  if (shape.head_size > kLargestHead || rows > INT32_MAX) return false;
  const AttentionLayout at =
      LayoutOf(kernel, shape, dropout, qkv.dtype, Aligned(dout.data, qkv.data, out.data, dqkv.data));
  if (qkv.numel() == 0 || !WgmmaKnows(at, qkv.dtype)) return false;
  const auto run = [&](auto type) {
    using T = decltype(type);
    AttentionBackwardWgmma(
        Stream(context), at,
        AttentionTensors<T>{Elements<T>(qkv), Elements<T>(dout), Elements<T>(out), Elements<T>(dqkv),
                            Elements<float>(log_sum_exp), Workspace<float>(context, kernel, rows * 4), nullptr});
  };
  if (qkv.dtype == DType::bf16)
    run(__nv_bfloat16{});
  else
    run(__half{});
  return true;
}

void AttentionForward(const KernelContext& context, const AttentionShape& shape, Tensor qkv,
                      const AttentionDropout& dropout, Tensor out, Tensor log_sum_exp, Tensor first_key) {
  if (first_key || !CudnnAttentionForward(context, shape, qkv, dropout, out, log_sum_exp))
    OwnAttentionForward(context, shape, qkv, dropout, out, log_sum_exp, first_key);
}

/// cuDNN is slower than warpgroups where it must be deterministic, and about as fast where it may add in any order
/// (docs/performance.md).
void AttentionBackward(const KernelContext& context, const AttentionShape& shape, Tensor dout, Tensor qkv, Tensor out,
                       Tensor log_sum_exp, const AttentionDropout& dropout, Tensor dqkv, Tensor first_key) {
  if (!first_key && context.deterministic &&
      WgmmaAttentionBackward(context, shape, dout, qkv, out, log_sum_exp, dropout, dqkv))
    return;
  if (first_key || !CudnnAttentionBackward(context, shape, dout, qkv, out, log_sum_exp, dropout, dqkv))
    OwnAttentionBackward(context, shape, dout, qkv, out, log_sum_exp, dropout, dqkv, first_key);
}

}  // namespace ds::cuda
