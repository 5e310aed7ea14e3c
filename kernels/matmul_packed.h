// Matrix products by our own code for AVX-512 and AMX: both operands are packed into panels that a micro-kernel reads
// in order (Goto, van de Geijn 2008). Internal to the CPU kernels.
//
// An element of the result is a chain of sums that depends on K alone: not on M, N, the other operand's size, leading
// dimensions or threads. So a row computed alone has the bits that it has among others.
#pragma once

#include "kernels/context.h"
#include "kernels/matmul_onednn.h"

namespace ds::detail {

/// A part of an operand as stored: `extent` rows of op(a), or columns of op(b), and `depth` values of k.
struct PackSource {
  const void* data = nullptr;  ///< element (first row or column, first k)
  DType type = DType::f32;
  int64_t ld = 0;
  bool k_contiguous = false;  ///< k is the fastest index (a as it is, b transposed)
  int64_t extent = 0, depth = 0;
};

/// What happens to the sums of one panel of a times one panel of b over a part of K.
struct PanelOutput {
  int64_t rows = 0, columns = 0;
  float* sums = nullptr;  ///< [rows, columns] so far, row stride ld_sums
  int64_t ld_sums = 0;
  bool first = false;   ///< sums are not read
  bool finish = false;  ///< c = alpha * (sums + product) (+ bias) (+ c) instead of sums += product
  void* c = nullptr;
  DType c_type = DType::f32;
  int64_t ldc = 0;
  const void* bias = nullptr;  ///< [columns] or null
  DType bias_type = DType::f32;
  bool accumulate = false;
  float alpha = 1.0f;
};

constexpr int64_t kFewRows = 4;

/// The operations of an instruction set. A panel of a has `rows` rows at most, a panel of b `columns` columns; a packed
/// panel takes PanelElements of `element` bytes, aligned to 64 bytes.
struct PackedKernel {
  const char* name;
  DType type;  ///< of packed elements: f32, or bf16
  int64_t rows, columns;
  int64_t depth_unit;  ///< panels hold K rounded up to this, zeros beyond K
  int64_t depth;       ///< of K that one call of `multiply` is best given
  void (*pack_a)(const PackSource&, void* panel);
  void (*pack_b)(const PackSource&, void* panel);
  /// The product of `depth` values of k from packed k `begin` on; a_rows: rows that the panel of a was packed with.
  void (*multiply)(const void* a, int64_t a_rows, const void* b, int64_t begin, int64_t depth, const PanelOutput& out);
  /// What a thread needs before its first `multiply`, and after its last; null: nothing.
  void (*enter)();
  void (*leave)();
  /// Columns [column, column + 16) of a product of at most kFewRows rows with b transposed, without packing, to the
  /// same bits: K is cut into slabs, and these into parts of `depth`. Null: there is none.
  void (*few_rows)(const BlockProduct& p, int64_t column, int64_t slab, int64_t depth);
};

/// What this build has, whatever the CPU; null on other architectures.
extern const PackedKernel* const kCompiledAvx512Kernel;
extern const PackedKernel* const kCompiledAmxKernel;

/// The kernels that this CPU runs; null where it has not the instructions.
const PackedKernel* Avx512Kernel();
const PackedKernel* AmxKernel();

/// The kernel to multiply matrices of this dtype with; null: oneDNN or what MatMul does without it.
const PackedKernel* PackedKernelFor(DType dtype);

/// Computes p with at most context.threads threads. p.ab: f32, bf16, f16; bf16 alone for a kernel whose type is bf16.
void MultiplyPacked(const PackedKernel& kernel, const KernelContext& context, const BlockProduct& p);

}  // namespace ds::detail
