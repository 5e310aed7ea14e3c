// What kernels check before they touch memory. Internal to kernels/.
#pragma once

#include <stdexcept>
#include <string>

#include "kernels/tensor.h"

namespace ds::detail {

/// Throws std::invalid_argument("KERNEL: what") unless ok.
inline void Check(bool ok, const char* kernel, const std::string& what) {
  if (!ok) throw std::invalid_argument(std::string(kernel) + ": " + what);
}

/// "weight is f32 [3, 4] on the CPU", for error messages.
inline std::string Describe(const char* name, const Tensor& t) {
  return std::string(name) + " is " + NameOf(t.dtype) + " " + t.shape.str() +
         (t.device.kind == DeviceKind::cpu ? " on the CPU" : " on GPU " + std::to_string(t.device.index)) +
         (t.data || t.numel() == 0 ? "" : " (null)");
}

constexpr bool IsFloating(DType t) { return t == DType::f64 || t == DType::f32 || t == DType::bf16 || t == DType::f16; }
/// What sums and statistics of a tensor of this dtype are kept in.
constexpr DType AccumulateType(DType t) { return t == DType::f64 ? DType::f64 : DType::f32; }

/// Length of the last dimension, and how many such rows a tensor has: every tensor reads as [Rows, Columns].
inline int64_t Columns(const Tensor& t) { return t.shape.rank() ? t.shape[t.shape.rank() - 1] : 1; }
inline int64_t Rows(const Tensor& t) { return Columns(t) ? t.numel() / Columns(t) : 0; }

/// t has memory, on whatever device: that all tensors are on one is checked where the kernel is dispatched
/// (dispatch.h).
inline void CheckMemory(const char* kernel, const char* name, const Tensor& t) {
  if (!t.data && t.numel() != 0) Check(false, kernel, Describe(name, t) + ", expected memory");
}

/// t has a floating dtype.
inline void CheckFloating(const char* kernel, const char* name, const Tensor& t) {
  CheckMemory(kernel, name, t);
  if (!IsFloating(t.dtype)) Check(false, kernel, Describe(name, t) + ", expected f64, f32, bf16 or f16");
}

/// t has this dtype and reads as [rows, columns].
inline void CheckMatrix(const char* kernel, const char* name, const Tensor& t, DType dtype, int64_t rows,
                        int64_t columns) {
  CheckMemory(kernel, name, t);
  if (t.dtype != dtype || t.numel() != rows * columns || Columns(t) != columns)
    Check(false, kernel, Describe(name, t) + ", expected " + NameOf(dtype) + " " + Shape{rows, columns}.str());
}

/// t has this dtype and number of elements.
inline void CheckVector(const char* kernel, const char* name, const Tensor& t, DType dtype, int64_t numel) {
  CheckMemory(kernel, name, t);
  if (t.dtype != dtype || t.numel() != numel)
    Check(false, kernel, Describe(name, t) + ", expected " + NameOf(dtype) + " " + Shape{numel}.str());
}

}  // namespace ds::detail
