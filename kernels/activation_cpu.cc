#include "kernels/activation.h"

#include "kernels/activation_math.h"
#include "kernels/convert.h"
#include "kernels/dispatch.h"
#include "kernels/parallel.h"
#include "kernels/widest.h"

namespace ds {
namespace {

using detail::Acc;
using detail::Gelu;
using detail::GeluDerivative;
using detail::Sigmoid;

constexpr int64_t kBlock = 2048;  ///< elements a block: buffers of three stay in the first-level cache

template <GeluKind kind, class T>
void GeluForwardBlock(const T* x, T* y, int64_t n) {
  Acc<T> x_buffer[kBlock], y_buffer[kBlock];
  const Acc<T>* in = detail::Load(x, x_buffer, n);
  Acc<T>* out = detail::StoreTarget(y, y_buffer);
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) out[i] = Gelu<kind>(in[i]);
  detail::Store(out, y, n);
}

template <GeluKind kind, class T>
void GeluBackwardBlock(const T* dy, const T* x, T* dx, int64_t n) {
  Acc<T> dy_buffer[kBlock], x_buffer[kBlock], dx_buffer[kBlock];
  const Acc<T>* d = detail::Load(dy, dy_buffer, n);
  const Acc<T>* in = detail::Load(x, x_buffer, n);
  Acc<T>* out = detail::StoreTarget(dx, dx_buffer);
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) out[i] = d[i] * GeluDerivative<kind>(in[i]);
  detail::Store(out, dx, n);
}

/// body(row, begin, end): pieces of at most kBlock columns of [rows, columns].
template <class Body>
void ForEachPiece(const KernelContext& context, int64_t rows, int64_t columns, const Body& body) {
  const int64_t pieces = (columns + kBlock - 1) / kBlock;
  detail::ParallelFor(context, rows * pieces, [&](int64_t i) {
    const int64_t begin = i % pieces * kBlock;
    detail::Widest([&] { body(i / pieces, begin, std::min(columns, begin + kBlock)); });
  });
}

}  // namespace

void GeluForward(const KernelContext& context, GeluKind kind, Tensor x, Tensor y) {
  detail::CheckFloating("GeluForward", "x", x);
  detail::CheckVector("GeluForward", "y", y, x.dtype, x.numel());
  if (detail::RanOnCuda("GeluForward", cuda::GeluForward, context, kind, x, y)) return;
  detail::DispatchFloating(x.dtype, "GeluForward", [&](auto type) {
    using T = decltype(type);
    detail::DispatchKind(kind, [&](auto k) {
      detail::ParallelBlocks(context, x.numel(), kBlock, [&](int64_t begin, int64_t end) {
        detail::Widest([&] { GeluForwardBlock<k.value>(x.as<T>() + begin, y.as<T>() + begin, end - begin); });
      });
    });
  });
}

void GeluBackward(const KernelContext& context, GeluKind kind, Tensor dy, Tensor x, Tensor dx) {
  detail::CheckFloating("GeluBackward", "x", x);
  detail::CheckVector("GeluBackward", "dy", dy, x.dtype, x.numel());
  detail::CheckVector("GeluBackward", "dx", dx, x.dtype, x.numel());
  if (detail::RanOnCuda("GeluBackward", cuda::GeluBackward, context, kind, dy, x, dx)) return;
  detail::DispatchFloating(x.dtype, "GeluBackward", [&](auto type) {
    using T = decltype(type);
    detail::DispatchKind(kind, [&](auto k) {
      detail::ParallelBlocks(context, x.numel(), kBlock, [&](int64_t begin, int64_t end) {
        detail::Widest([&] {
          GeluBackwardBlock<k.value>(dy.as<T>() + begin, x.as<T>() + begin, dx.as<T>() + begin, end - begin);
        });
      });
    });
  });
}

void SwigluForward(const KernelContext& context, Tensor gate_up, Tensor y) {
  const char* kernel = "SwigluForward";
  detail::CheckFloating(kernel, "gate_up", gate_up);
  detail::CheckFloating(kernel, "y", y);
  const int64_t rows = detail::Rows(y), width = detail::Columns(y);
  detail::CheckMatrix(kernel, "gate_up", gate_up, y.dtype, rows, 2 * width);
  if (detail::RanOnCuda(kernel, cuda::SwigluForward, context, gate_up, y)) return;
  detail::DispatchFloating(y.dtype, kernel, [&](auto type) {
    using T = decltype(type);
    ForEachPiece(context, rows, width, [&](int64_t row, int64_t begin, int64_t end) {
      Acc<T> gate_buffer[kBlock], up_buffer[kBlock], y_buffer[kBlock];
      const int64_t n = end - begin;
      const T* in = gate_up.as<T>() + row * 2 * width + begin;
      T* y_row = y.as<T>() + row * width + begin;
      const Acc<T>* gate = detail::Load(in, gate_buffer, n);
      const Acc<T>* up = detail::Load(in + width, up_buffer, n);
      Acc<T>* out = detail::StoreTarget(y_row, y_buffer);
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) out[i] = gate[i] * Sigmoid(gate[i]) * up[i];
      detail::Store(out, y_row, n);
    });
  });
}

void SwigluBackward(const KernelContext& context, Tensor dy, Tensor gate_up, Tensor dgate_up) {
  const char* kernel = "SwigluBackward";
  detail::CheckFloating(kernel, "dy", dy);
  const int64_t rows = detail::Rows(dy), width = detail::Columns(dy);
  detail::CheckMatrix(kernel, "gate_up", gate_up, dy.dtype, rows, 2 * width);
  detail::CheckMatrix(kernel, "dgate_up", dgate_up, dy.dtype, rows, 2 * width);
  if (detail::RanOnCuda(kernel, cuda::SwigluBackward, context, dy, gate_up, dgate_up)) return;
  detail::DispatchFloating(dy.dtype, kernel, [&](auto type) {
    using T = decltype(type);
    ForEachPiece(context, rows, width, [&](int64_t row, int64_t begin, int64_t end) {
      Acc<T> dy_buffer[kBlock], gate_buffer[kBlock], up_buffer[kBlock];
      const int64_t n = end - begin;
      const T* in = gate_up.as<T>() + row * 2 * width + begin;
      T* out = dgate_up.as<T>() + row * 2 * width + begin;
      const Acc<T>* d = detail::Load(dy.as<T>() + row * width + begin, dy_buffer, n);
      const Acc<T>* gate = detail::Load(in, gate_buffer, n);
      const Acc<T>* up = detail::Load(in + width, up_buffer, n);
      Acc<T>* dgate = detail::StoreTarget(out, gate_buffer);
      Acc<T>* dup = detail::StoreTarget(out + width, up_buffer);
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) {
        const Acc<T> g = gate[i], u = up[i], s = Sigmoid(g);
        dup[i] = d[i] * g * s;
        dgate[i] = d[i] * u * s * (Acc<T>(1) + g * (Acc<T>(1) - s));
      }
      detail::Store(dgate, out, n);
      detail::Store(dup, out + width, n);
    });
  });
}

}  // namespace ds
