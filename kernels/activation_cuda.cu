#include "kernels/activation.h"
#include "kernels/activation_math.h"
#include "kernels/cuda_elementwise.h"

namespace ds::cuda {
namespace {

/// The logistic function for elements of type T. For 16 bits it is made of the hardware's 2^x and 1/x, good to a few
/// units of fp32's last place, and not of the CPU's operations: those take longer than the memory does.
template <class T>
struct SigmoidOf {
  __device__ Acc<T> operator()(Acc<T> x) const {
    if constexpr (sizeof(T) == 2) {
      float power, sigmoid;
      asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * -1.4426950408889634f));
      asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(sigmoid) : "f"(1.0f + power));
      return sigmoid;
    } else {
      return detail::Sigmoid(x);
    }
  }
};

template <GeluKind kind, class T>
struct GeluElements {
  const T* x;
  T* y;
  template <int N>
  __device__ void Apply(int64_t i) const {
    Pack<Acc<T>, N> v = Load<N>(x + i);
#pragma unroll
    for (int k = 0; k < N; ++k) v[k] = detail::Gelu<kind>(v[k], SigmoidOf<T>());
    Store(y + i, v);
  }
};

template <GeluKind kind, class T>
struct GeluGradients {
  const T *dy, *x;
  T* dx;
  template <int N>
  __device__ void Apply(int64_t i) const {
    Pack<Acc<T>, N> d = Load<N>(dy + i);
    const Pack<Acc<T>, N> v = Load<N>(x + i);
#pragma unroll
    for (int k = 0; k < N; ++k) d[k] *= detail::GeluDerivative<kind>(v[k], SigmoidOf<T>());
    Store(dx + i, d);
  }
};

template <class T>
struct Swiglu {
  const T* gate_up;
  T* y;
  int64_t width;
  template <int N>
  __device__ void Apply(int64_t row, int64_t column) const {
    const T* in = gate_up + row * 2 * width + column;
    Pack<Acc<T>, N> v = Load<N>(in);
    const Pack<Acc<T>, N> up = Load<N>(in + width);
#pragma unroll
    for (int k = 0; k < N; ++k) v[k] = v[k] * SigmoidOf<T>()(v[k]) * up[k];
    Store(y + row * width + column, v);
  }
};

template <class T>
struct SwigluGradients {
  using A = Acc<T>;
  const T *dy, *gate_up;
  T* dgate_up;
  int64_t width;
  template <int N>
  __device__ void Apply(int64_t row, int64_t column) const {
    const int64_t at = row * 2 * width + column;
    const Pack<A, N> d = Load<N>(dy + row * width + column);
    Pack<A, N> gate = Load<N>(gate_up + at), up = Load<N>(gate_up + at + width);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const A g = gate[k], u = up[k], s = SigmoidOf<T>()(g);
      up[k] = d[k] * g * s;
      gate[k] = d[k] * u * s * (A(1) + g * (A(1) - s));
    }
    Store(dgate_up + at, gate);
    Store(dgate_up + at + width, up);
  }
};

constexpr int kThreads = 256;

template <int N, class Operation>
__global__ void __launch_bounds__(kThreads) MatrixKernel(int64_t columns, Operation operation) {
  const int64_t column = (static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x) * N;
  if (column < columns) operation.template Apply<N>(blockIdx.x, column);
}

/// operation.Apply<pack>(row, column) for every pack of [rows, columns].
template <int pack, class Operation>
void ForEachPack(const KernelContext& context, const char* kernel, int64_t rows, int64_t columns,
                 const Operation& operation) {
  if (rows == 0 || columns == 0) return;
  constexpr int64_t kPerBlock = int64_t{kThreads} * pack;
  const dim3 grid(static_cast<unsigned>(rows), static_cast<unsigned>((columns + kPerBlock - 1) / kPerBlock));
  MatrixKernel<pack><<<grid, kThreads, 0, Stream(context)>>>(columns, operation);
  CheckLaunch(kernel);
}

}  // namespace

void GeluForward(const KernelContext& context, GeluKind kind, Tensor x, Tensor y) {
  DispatchFloating(x.dtype, "GeluForward", [&](auto type) {
    using T = decltype(type);
    detail::DispatchKind(kind, [&](auto k) {
      ForEachElement(context, "GeluForward", x.numel(), Aligned(x.data, y.data),
                     GeluElements<k.value, T>{Elements<T>(x), Elements<T>(y)});
    });
  });
}

void GeluBackward(const KernelContext& context, GeluKind kind, Tensor dy, Tensor x, Tensor dx) {
  DispatchFloating(x.dtype, "GeluBackward", [&](auto type) {
    using T = decltype(type);
    detail::DispatchKind(kind, [&](auto k) {
      ForEachElement(context, "GeluBackward", x.numel(), Aligned(dy.data, x.data, dx.data),
                     GeluGradients<k.value, T>{Elements<T>(dy), Elements<T>(x), Elements<T>(dx)});
    });
  });
}

void SwigluForward(const KernelContext& context, Tensor gate_up, Tensor y) {
  const int64_t rows = detail::Rows(y), width = detail::Columns(y);
  DispatchPacks(y.dtype, "SwigluForward", width, Aligned(gate_up.data, y.data), [&](auto type, auto pack) {
    using T = decltype(type);
    ForEachPack<pack>(context, "SwigluForward", rows, width, Swiglu<T>{Elements<T>(gate_up), Elements<T>(y), width});
  });
}

void SwigluBackward(const KernelContext& context, Tensor dy, Tensor gate_up, Tensor dgate_up) {
  const int64_t rows = detail::Rows(dy), width = detail::Columns(dy);
  const bool aligned = Aligned(dy.data, gate_up.data, dgate_up.data);
  DispatchPacks(dy.dtype, "SwigluBackward", width, aligned, [&](auto type, auto pack) {
    using T = decltype(type);
    ForEachPack<pack>(context, "SwigluBackward", rows, width,
                      SwigluGradients<T>{Elements<T>(dy), Elements<T>(gate_up), Elements<T>(dgate_up), width});
  });
}

}  // namespace ds::cuda
