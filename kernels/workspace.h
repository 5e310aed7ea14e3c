// How much of KernelContext::workspace GPU kernels need; those not named here need none. Functions of shapes alone, so
// that a plan knows the memory before there is a device. On the CPU no kernel uses it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/attention.h"

namespace ds {

/// Kernels that sum `sums` values a column over the rows of a matrix (BiasBackward 1, RmsNormBackwardWeight 1,
/// LayerNormBackwardWeight 2): the sums of blocks of rows.
constexpr int64_t kRowsPerPartialSum = 64;  ///< rows of a block: part of the order of such sums, on every device
constexpr int64_t ColumnSumsWorkspaceBytes(int64_t rows, int64_t columns, int64_t sums, DType dtype) {
  const int64_t blocks = (rows + kRowsPerPartialSum - 1) / kRowsPerPartialSum;
  return blocks > 1 ? blocks * columns * sums * (dtype == DType::f64 ? 8 : 4) : 0;
}

/// MatMul and what is fused with it. Constant: a product's algorithm, and so its bits, may depend on it.
constexpr int64_t kCublasLtWorkspace = int64_t{32} << 20;
constexpr int64_t MatMulWorkspaceBytes() { return kCublasLtWorkspace; }

/// The two operands of an 8-bit product, of so many elements, each with two scalars of its own.
constexpr int64_t kFp8OperandAlignment = 256;
constexpr int64_t Fp8OperandsBytes(int64_t first, int64_t second) {
  const auto up = [](int64_t n) {
    return (n + kFp8OperandAlignment - 1) / kFp8OperandAlignment * kFp8OperandAlignment;
  };
  return up(first) + up(second) + 4 * kFp8OperandAlignment;
}
/// The three passes of a linear layer [out, in] over `rows` rows (fp8_linear.h), each with the product's own.
constexpr int64_t Fp8LinearWorkspaceBytes(int64_t rows, int64_t in, int64_t out) {
  return MatMulWorkspaceBytes() +
         std::max({Fp8OperandsBytes(rows * in, out * in), Fp8OperandsBytes(rows * out, out * in),
                   Fp8OperandsBytes(rows * out, rows * in)});
}

/// Shapes for which attention asks cuDNN first. Its backward wants memory for a product of T x T 16-bit numbers a head
/// where it has to give the same bits in every run, so it is called for as many samples and key heads at a time as fit
/// into kCudnnAttentionLimit; where not even one does, our own kernel computes it.
constexpr bool AsksCudnn(const AttentionShape& s, DType dtype) {
  return (dtype == DType::bf16 || dtype == DType::f16) && s.batch > 0 && s.tokens > 0 && s.head_size >= 64 &&
         s.head_size <= 256 && s.head_size % 8 == 0;
}
constexpr int64_t kCudnnAttentionLimit = int64_t{512} << 20;

/// A part of a backward pass that cuDNN computes at a time: samples and key heads, with the query heads that see them.
struct CudnnAttentionPart {
  int64_t samples = 0, kv_heads = 0;  ///< 0 where nothing fits
  int64_t bytes = 0;                  ///< all that the part needs
};
constexpr CudnnAttentionPart CudnnAttentionPartOf(const AttentionShape& s, bool deterministic) {
  if (s.batch < 1 || s.tokens < 1) return {};
  const auto up = [](int64_t n, int64_t step) { return (n + step - 1) / step * step; };
  const int64_t group = s.heads / s.kv_heads, elements = group * s.tokens * s.head_size;
  // For one key head: dout . out of every row; products or sums of the queries' gradients; before they are summed over
  // the group, the gradients of keys and values.
  const int64_t each = up(group * s.tokens * 4, 256) +
                       (deterministic ? 2 * group * up(s.tokens, 64) * up(s.tokens, 128) : up(elements * 4, 256)) +
                       (group > 1 ? up(elements * 4, 256) : 0);
  const int64_t fixed = 4096, most = (kCudnnAttentionLimit - fixed) / each;
  const auto even = [](int64_t n, int64_t most_at_a_time) {  // parts of n as equal as they can be
    const int64_t parts = (n + most_at_a_time - 1) / most_at_a_time;
    return (n + parts - 1) / parts;
  };
  if (most < 1) return {};
  CudnnAttentionPart part{1, s.kv_heads, 0};
  if (most >= s.kv_heads)
    part.samples = even(s.batch, most / s.kv_heads);
  else
    part.kv_heads = even(s.kv_heads, most);
  part.bytes = part.samples * part.kv_heads * each + fixed;
  return part;
}

/// AttentionForward and AttentionBackward, whichever way they are computed, deterministic or not. first_keys: they are
/// given first keys, and so never computed by cuDNN.
constexpr int64_t AttentionWorkspaceBytes(const AttentionShape& s, DType dtype, bool backward,
                                          bool first_keys = false) {
  if (!backward) return 4096;
  const int64_t own = s.batch * s.heads * s.tokens * (dtype == DType::f64 ? 8 : 4);
  if (first_keys || !AsksCudnn(s, dtype)) return own;
  return std::max({own, CudnnAttentionPartOf(s, true).bytes, CudnnAttentionPartOf(s, false).bytes});
}

/// A term of AddSumsOfSquares, of n elements: the sums of its blocks. All terms' are wanted at once.
constexpr int64_t kSumOfSquaresBlock = 65536;  ///< elements of a block: part of the order in reduce.h
constexpr int64_t SumOfSquaresWorkspaceBytes(int64_t n) {
  return (n + kSumOfSquaresBlock - 1) / kSumOfSquaresBlock * 8;
}

/// EmbeddingBackwardTokens of so many tokens: they are sorted by id.
constexpr int64_t kTokensPerSortTile = 2048;
constexpr int64_t EmbeddingBackwardWorkspaceBytes(int64_t tokens) {
  return 16 * tokens + (tokens + kTokensPerSortTile - 1) / kTokensPerSortTile * 256 * 4;
}

}  // namespace ds
