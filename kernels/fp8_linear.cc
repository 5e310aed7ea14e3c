#include "kernels/fp8_linear.h"

#include <string>

#include "kernels/aligned_memory.h"
#include "kernels/dispatch.h"
#include "kernels/fp8.h"
#include "kernels/workspace.h"

namespace ds {
namespace {

/// The quantised operands of one product, one behind the other: on a GPU in the workspace behind the product's own, on
/// the CPU in memory of its own.
class Operands {
 public:
  Operands(const KernelContext& context, const char* kernel, Device device, int64_t first, int64_t second)
      : context_(context), device_(device), bytes_(Fp8OperandsBytes(first, second)) {
    if (device.kind == DeviceKind::cpu) {
      memory_ = detail::AllocateAligned(bytes_);
      base_ = reinterpret_cast<char*>(memory_.get());
    } else {
      const int64_t needed = MatMulWorkspaceBytes() + bytes_;
      detail::Check(
          context.workspace_bytes >= needed, kernel,
          "needs a workspace of " + std::to_string(needed) + " bytes, has " + std::to_string(context.workspace_bytes));
      base_ = static_cast<char*>(context.workspace) + MatMulWorkspaceBytes();
    }
  }

  struct Matrix {
    Tensor codes, inverse;
  };
  /// x, a bf16 matrix, in 8 bits: as it is, or transposed.
  Matrix Quantized(DType dtype, const Tensor& x, bool transpose) {
    const int64_t rows = detail::Rows(x), columns = detail::Columns(x);
    const Tensor inverse = Take(DType::f32, {1}), largest = Take(DType::i32, {1});
    const Tensor codes = Take(dtype, transpose ? Shape{columns, rows} : Shape{rows, columns});
    QuantizeFp8(context_, x, transpose, codes, inverse, largest);
    return {codes, inverse};
  }

 private:
  Tensor Take(DType dtype, Shape shape) {
    const Tensor tensor(base_ + used_, dtype, shape, device_);
    used_ += (tensor.bytes() + kFp8OperandAlignment - 1) / kFp8OperandAlignment * kFp8OperandAlignment;
    return tensor;
  }

  const KernelContext& context_;
  const Device device_;
  const int64_t bytes_;
  detail::AlignedMemory memory_;
  char* base_ = nullptr;
  int64_t used_ = 0;
};

void CheckShape(const char* kernel, int64_t rows, int64_t in, int64_t out) {
  detail::Check(Fp8Multiplies(rows, in, out), kernel,
                "a layer " + Shape{out, in}.str() + " of " + std::to_string(rows) +
                    " rows has no 8-bit products: they want multiples of 16");
}

}  // namespace

void Fp8LinearForward(const KernelContext& context, Tensor x, Tensor weight, Tensor bias, Tensor y) {
  const char* kernel = "Fp8LinearForward";
  const int64_t rows = detail::Rows(x), in = detail::Columns(x), out = detail::Columns(y);
  CheckShape(kernel, rows, in, out);
  detail::CheckMatrix(kernel, "x", x, DType::bf16, rows, in);
  detail::CheckMatrix(kernel, "weight", weight, DType::bf16, out, in);
  detail::CheckMatrix(kernel, "y", y, DType::bf16, rows, out);
  Operands operands(context, kernel, detail::DeviceOf(kernel, x, weight, bias, y), x.numel(), weight.numel());
  const auto a = operands.Quantized(DType::f8_e4m3, x, false);
  const auto b = operands.Quantized(DType::f8_e4m3, weight, false);
  MatMulFp8(context, a.codes, a.inverse, b.codes, b.inverse, bias, y, false);
}

void Fp8LinearBackwardInput(const KernelContext& context, Tensor dy, Tensor weight, Tensor dx) {
  const char* kernel = "Fp8LinearBackwardInput";
  const int64_t rows = detail::Rows(dy), out = detail::Columns(dy), in = detail::Columns(dx);
  CheckShape(kernel, rows, in, out);
  detail::CheckMatrix(kernel, "dy", dy, DType::bf16, rows, out);
  detail::CheckMatrix(kernel, "weight", weight, DType::bf16, out, in);
  detail::CheckMatrix(kernel, "dx", dx, DType::bf16, rows, in);
  Operands operands(context, kernel, detail::DeviceOf(kernel, dy, weight, dx), dy.numel(), weight.numel());
  const auto a = operands.Quantized(DType::f8_e5m2, dy, false);
  const auto b = operands.Quantized(DType::f8_e4m3, weight, true);
  MatMulFp8(context, a.codes, a.inverse, b.codes, b.inverse, {}, dx, false);
}

void Fp8LinearBackwardWeight(const KernelContext& context, Tensor dy, Tensor x, Tensor dweight, bool accumulate) {
  const char* kernel = "Fp8LinearBackwardWeight";
  const int64_t rows = detail::Rows(dy), out = detail::Columns(dy), in = detail::Columns(x);
  CheckShape(kernel, rows, in, out);
  detail::CheckMatrix(kernel, "dy", dy, DType::bf16, rows, out);
  detail::CheckMatrix(kernel, "x", x, DType::bf16, rows, in);
  detail::CheckMatrix(kernel, "dweight", dweight, DType::f32, out, in);
  Operands operands(context, kernel, detail::DeviceOf(kernel, dy, x, dweight), dy.numel(), x.numel());
  const auto a = operands.Quantized(DType::f8_e5m2, dy, true);
  const auto b = operands.Quantized(DType::f8_e4m3, x, true);
  MatMulFp8(context, a.codes, a.inverse, b.codes, b.inverse, {}, dweight, accumulate);
}

}  // namespace ds
