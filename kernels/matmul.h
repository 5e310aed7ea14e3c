// Matrix product with an optional bias and accumulation.
#pragma once

#include "kernels/context.h"
#include "kernels/tensor.h"

namespace ds {

struct MatMulOptions {
  bool transpose_a = false;  ///< a is stored [K, M]
  bool transpose_b = false;  ///< b is stored [N, K]
  bool accumulate = false;   ///< c += instead of c =
  Tensor bias;               ///< optional [N], dtype of a or f32; added to every row (not with accumulate)
  float alpha = 1.0f;        ///< scales the product, not the bias
};

/// c[M, N] = alpha * op(a)[M, K] * op(b)[K, N] (+ bias) (+ c).
/// a and b: one dtype of {f64, f32, bf16, f16}; c: that dtype or f32 (f64 for f64). Products accumulate in fp32 or
/// better. Tensors of more than two dimensions are read as [product of the leading ones, last].
/// The output is cut into tiles that do not depend on the thread count, each computed by one thread: so results do not
/// either. Throws std::invalid_argument on shapes or dtypes that do not fit.
///
/// On a GPU: by the algorithm that the table of choices names (matmul_choice.h), otherwise the library's first
/// suggestion; either sums in a fixed order. fp32 is multiplied in fp32, not TF32. Any shape and address works; those
/// whose rows do not start at multiples of 16 bytes are slower. A 16-bit c may be rounded twice where a bias or its old
/// value is added: before and after that. Workspace: MatMulWorkspaceBytes().
void MatMul(const KernelContext& context, Tensor a, Tensor b, Tensor c, const MatMulOptions& options = {});

/// The same product on raw row-major blocks with leading dimensions, on the calling thread alone: the building block
/// of attention. lda is the row stride of a as stored.
void MatMulBlock(DType ab, DType c_type, int64_t m, int64_t n, int64_t k, const void* a, int64_t lda, bool transpose_a,
                 const void* b, int64_t ldb, bool transpose_b, void* c, int64_t ldc, bool accumulate);

}  // namespace ds
