#include "kernels/fp8.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "kernels/dispatch.h"
#include "kernels/fp8_math.h"
#include "kernels/matmul.h"
#include "kernels/parallel.h"

namespace ds {
namespace {

using detail::kElementsPerBlock;

bool Sixteenth(int64_t n) { return n > 0 && n % 16 == 0; }

/// The bits of max |x|.
uint32_t LargestBits(const KernelContext& context, const bf16* x, int64_t n) {
  std::vector<uint16_t> largest(static_cast<size_t>((n + kElementsPerBlock - 1) / kElementsPerBlock));
  detail::ParallelBlocks(context, n, kElementsPerBlock, [&](int64_t begin, int64_t end) {
    uint16_t most = 0;
    for (int64_t i = begin; i < end; ++i) most = std::max(most, static_cast<uint16_t>(x[i].bits & 0x7fffu));
    largest[static_cast<size_t>(begin / kElementsPerBlock)] = most;
  });
  return *std::max_element(largest.begin(), largest.end());
}

template <class Format>
void Quantize(const KernelContext& context, const bf16* x, int64_t rows, int64_t columns, bool transpose, float scale,
              uint8_t* codes) {
  const auto code = [scale](bf16 element) { return detail::ToFp8<Format>(static_cast<float>(element) * scale); };
  if (!transpose)
    return detail::ParallelBlocks(context, rows * columns, kElementsPerBlock, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) codes[i] = code(x[i]);
    });
  detail::ParallelBlocks(context, columns, 16, [&](int64_t begin, int64_t end) {
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t column = begin; column < end; ++column) codes[column * rows + row] = code(x[row * columns + column]);
  });
}

/// The values of codes, in memory of its own.
template <class Format>
void Decode(const KernelContext& context, const uint8_t* codes, int64_t n, bf16* values) {
  std::array<bf16, 256> value;
  for (size_t code = 0; code < value.size(); ++code)
    value[code] = bf16(detail::FromFp8<Format>(static_cast<uint8_t>(code)));
  detail::ParallelBlocks(context, n, kElementsPerBlock, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) values[i] = value[codes[i]];
  });
}

class Decoded {
 public:
  Decoded(const KernelContext& context, const Tensor& codes)
      : memory_(detail::AllocateAligned(codes.numel() * static_cast<int64_t>(sizeof(bf16)))),
        tensor_(memory_.get(), DType::bf16, codes.shape) {
    detail::DispatchFp8(codes.dtype, "MatMulFp8", [&](auto format) {
      Decode<decltype(format)>(context, static_cast<const uint8_t*>(codes.data), codes.numel(), tensor_.as<bf16>());
    });
  }
  const Tensor& tensor() const { return tensor_; }

 private:
  detail::AlignedMemory memory_;
  Tensor tensor_;
};

}  // namespace

void QuantizeFp8(const KernelContext& context, Tensor x, bool transpose, Tensor codes, Tensor inverse_scale,
                 Tensor largest) {
  const char* kernel = "QuantizeFp8";
  const int64_t rows = detail::Rows(x), columns = detail::Columns(x);
  detail::CheckMatrix(kernel, "x", x, DType::bf16, rows, columns);
  detail::Check(Sixteenth(rows) && Sixteenth(columns), kernel,
                detail::Describe("x", x) + ", expected multiples of 16 rows and columns");
  detail::Check(IsFp8(codes.dtype), kernel, detail::Describe("codes", codes) + ", expected f8_e4m3 or f8_e5m2");
  detail::CheckMatrix(kernel, "codes", codes, codes.dtype, transpose ? columns : rows, transpose ? rows : columns);
  detail::Check(reinterpret_cast<uintptr_t>(codes.data) % 16 == 0, kernel, "codes start at no multiple of 16 bytes");
  detail::CheckVector(kernel, "inverse_scale", inverse_scale, DType::f32, 1);
  detail::CheckVector(kernel, "largest", largest, DType::i32, 1);
  if (detail::RanOnCuda(kernel, cuda::QuantizeFp8, context, x, transpose, codes, inverse_scale, largest)) return;
  const uint32_t bits = LargestBits(context, x.as<bf16>(), x.numel());
  *largest.as<int32_t>() = static_cast<int32_t>(bits);
  detail::DispatchFp8(codes.dtype, kernel, [&](auto format) {
    using Format = decltype(format);
    const detail::Fp8Scale scale = detail::Fp8ScaleOf<Format>(bits);
    *inverse_scale.as<float>() = scale.inverse;
    Quantize<Format>(context, x.as<bf16>(), rows, columns, transpose, scale.scale, static_cast<uint8_t*>(codes.data));
  });
}

void MatMulFp8(const KernelContext& context, Tensor a, Tensor a_inverse, Tensor b, Tensor b_inverse, Tensor bias,
               Tensor c, bool accumulate) {
  const char* kernel = "MatMulFp8";
  const int64_t m = detail::Rows(a), k = detail::Columns(a), n = detail::Rows(b);
  detail::Check(IsFp8(a.dtype), kernel, detail::Describe("a", a) + ", expected f8_e4m3 or f8_e5m2");
  detail::CheckMatrix(kernel, "a", a, a.dtype, m, k);
  detail::CheckMatrix(kernel, "b", b, DType::f8_e4m3, n, k);
  detail::Check(Sixteenth(m) && Sixteenth(n) && Sixteenth(k), kernel,
                detail::Describe("a", a) + ", " + detail::Describe("b", b) + ", expected multiples of 16");
  detail::CheckVector(kernel, "a_inverse", a_inverse, DType::f32, 1);
  detail::CheckVector(kernel, "b_inverse", b_inverse, DType::f32, 1);
  detail::Check(c.dtype == DType::bf16 || c.dtype == DType::f32, kernel,
                detail::Describe("c", c) + ", expected bf16 or f32");
  detail::CheckMatrix(kernel, "c", c, c.dtype, m, n);
  if (bias) {
    detail::CheckVector(kernel, "bias", bias, DType::bf16, n);
    detail::Check(c.dtype == DType::bf16 && !accumulate, kernel, "a bias with c of f32, or with accumulate");
  }
  if (detail::RanOnCuda(kernel, cuda::MatMulFp8, context, a, a_inverse, b, b_inverse, bias, c, accumulate)) return;
  const Decoded left(context, a), right(context, b);  // bf16 has every value of both formats
  MatMulOptions options;
  options.transpose_b = true, options.accumulate = accumulate, options.bias = bias;
  options.alpha = *a_inverse.as<float>() * *b_inverse.as<float>();
  MatMul(context, left.tensor(), right.tensor(), c, options);
}

}  // namespace ds
