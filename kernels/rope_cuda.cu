#include "kernels/cuda_check.h"
#include "kernels/cuda_types.h"
#include "kernels/rope.h"

namespace ds::cuda {
namespace {

constexpr int kThreads = 128;

/// A block turns the heads of one token, a thread N pairs at a time.
template <class T, class Table, int N>
__global__ void __launch_bounds__(kThreads)
    Turn(T* x, int tokens, int64_t width, int heads, int half, const Table* cos, const Table* sin, bool inverse) {
  using A = Acc<T>;
  T* token = x + static_cast<int64_t>(blockIdx.x) * width;
  const int64_t row = static_cast<int64_t>(blockIdx.x % static_cast<unsigned>(tokens)) * half;
  const int packs = half / N;
  for (int p = threadIdx.x; p < heads * packs; p += kThreads) {
    const int column = p % packs * N;
    T* head = token + static_cast<int64_t>(p / packs) * 2 * half + column;
    const Pack<A, N> c = ConvertPack<A>(LoadRaw<N>(cos + row + column));
    Pack<A, N> s = ConvertPack<A>(LoadRaw<N>(sin + row + column));
    Pack<A, N> a = Load<N>(head), b = Load<N>(head + half);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (inverse) s[i] = -s[i];
      const A first = a[i] * c[i] - b[i] * s[i];
      const A second = b[i] * c[i] + a[i] * s[i];
      a[i] = first;
      b[i] = second;
    }
    Store(head, a);
    Store(head + half, b);
  }
}

}  // namespace

void Rope(const KernelContext& context, Tensor x, int64_t heads, Tensor cos, Tensor sin, bool inverse) {
  const int64_t rows = x.shape[0] * x.shape[1], half = x.shape[3] / 2;
  if (rows == 0 || heads * half == 0) return;
  DispatchPacks(x.dtype, "Rope", half, Aligned(x.data, cos.data, sin.data), [&](auto type, auto pack) {
    using T = decltype(type);
    const auto turn = [&](auto table) {
      using Table = decltype(table);
      Turn<T, Table, pack><<<static_cast<unsigned>(rows), kThreads, 0, Stream(context)>>>(
          Elements<T>(x), static_cast<int>(x.shape[1]), x.shape[2] * x.shape[3], static_cast<int>(heads),
          static_cast<int>(half), Elements<Table>(cos), Elements<Table>(sin), inverse);
    };
    if (cos.dtype == DType::f64)
      turn(double{});
    else
      turn(float{});
    CheckLaunch("Rope");
  });
}

}  // namespace ds::cuda
