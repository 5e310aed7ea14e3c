// Matrix products by cuBLASLt. Internal to the GPU kernels.
#pragma once

#include <cublasLt.h>

#include <optional>
#include <vector>

#include "kernels/context.h"
#include "kernels/matmul.h"
#include "kernels/matmul_choice.h"

namespace ds::cuda {

/// c[m, n] = epilogue(alpha * op(a) * op(b) + beta * (added or c)) on row-major matrices; ld* are row strides as
/// stored. In 8 bits (MatMulKey says what `ab` means then) also times *a_scale and *b_scale.
struct LtProduct {
  int64_t m = 0, n = 0, k = 0;
  DType ab = DType::f32, c_type = DType::f32;
  bool transpose_a = false, transpose_b = false, accumulate = false;
  float alpha = 1.0f;
  MatMulEpilogue epilogue = MatMulEpilogue::none;
  int64_t lda = 0, ldb = 0, ldc = 0;
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  const void* added = nullptr;     ///< where accumulating: what is added, laid out as c, in place of c's own values
  const void* bias = nullptr;      ///< [n] of c's type, for the epilogues with a bias
  void* aux = nullptr;             ///< [m, n] dense of c's type, for the epilogues with GELU
  const float* a_scale = nullptr;  ///< on the device; null: 1
  const float* b_scale = nullptr;
};

/// Throws std::runtime_error("CALL: what cuBLASLt says") unless status is success.
void CheckLt(cublasStatus_t status, const char* call);

/// MatMul's arguments as a product, without the bias.
LtProduct ProductOf(const Tensor& a, const Tensor& b, const Tensor& c, const MatMulOptions& options);

/// The product as a key of the table of choices.
MatMulKey KeyOf(const LtProduct& p);

/// The library's suggestions for p on the current device, best first, at most `limit`; only those whose sums have a
/// fixed order (matmul_choice.h) and that work with p's addresses.
std::vector<cublasLtMatmulHeuristicResult_t> SuggestedAlgorithms(const LtProduct& p, int limit);

/// Computes p with this algorithm on the context's stream.
void MultiplyWith(const KernelContext& context, const LtProduct& p, const cublasLtMatmulAlgo_t& algorithm);

/// Computes p with the algorithm of the table of choices, or else the library's first suggestion. False, and nothing
/// done, where the library has none. Thread-safe; algorithms are looked up once a kind of product and device, and kept.
bool MultiplyWithLt(const KernelContext& context, const char* kernel, const LtProduct& p);

}  // namespace ds::cuda
