// How much of KernelContext::workspace GPU kernels need; those not named here need none. Functions of shapes alone, so
// that a plan knows the memory before there is a device. On the CPU no kernel uses it.
#pragma once

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

/// AttentionBackward; AttentionForward needs none. Of every row: dout . out.
constexpr int64_t AttentionWorkspaceBytes(const AttentionShape& s, DType dtype) {
  return s.batch * s.heads * s.tokens * (dtype == DType::f64 ? 8 : 4);
}

}  // namespace ds
