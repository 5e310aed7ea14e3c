#include "kernels/embedding.h"

#include "kernels/cuda_check.h"
#include "kernels/cuda_token_order.h"
#include "kernels/cuda_types.h"

namespace ds::cuda {
namespace {

constexpr int kThreads = 128;

/// blockIdx.x is the row; the thread's pack of columns begins here.
template <int N>
__device__ int64_t Column() {
  return (static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x) * N;
}

template <int pack>
dim3 Grid(int64_t rows, int64_t columns) {
  constexpr int64_t kPerBlock = int64_t{kThreads} * pack;
  return dim3(static_cast<unsigned>(rows), static_cast<unsigned>((columns + kPerBlock - 1) / kPerBlock));
}

template <class T, int N>
__global__ void __launch_bounds__(kThreads) Gather(const int32_t* ids, int tokens, int64_t columns, const T* table,
                                                   int64_t vocabulary, const T* positions, T* y) {
  const int64_t column = Column<N>();
  if (column >= columns) return;
  const int64_t token = blockIdx.x;
  const int32_t id = ids[token];
  T* out = y + token * columns + column;
  if (id < 0 || id >= vocabulary) {
    Pack<float, N> nan;
#pragma unroll
    for (int i = 0; i < N; ++i) nan[i] = __uint_as_float(0x7fc00000u);
    return Store(out, nan);
  }
  const Pack<T, N> row = LoadRaw<N>(table + id * columns + column);
  if (!positions) return StoreRaw(out, row);
  Pack<Acc<T>, N> sum = ConvertPack<Acc<T>>(row);
  const Pack<Acc<T>, N> position = Load<N>(positions + token % tokens * columns + column);
#pragma unroll
  for (int i = 0; i < N; ++i) sum[i] += position[i];
  Store(out, sum);
}

/// Adds up the rows of dy whose tokens have one id: a block for each place where an id begins in the sorted tokens.
template <class T, int N>
__global__ void __launch_bounds__(kThreads) SumTokens(TokenOrder order, int64_t count, int64_t vocabulary,
                                                      int64_t columns, const T* dy, Acc<T>* table, bool accumulate) {
  constexpr int kTogether = 16;  // rows on their way at a time
  __shared__ int32_t rows[kThreads];
  const int64_t begin = blockIdx.x;
  const int32_t id = order.ids[begin];
  if (id >= vocabulary || (begin > 0 && order.ids[begin - 1] == id)) return;
  const int64_t column = Column<N>();
  const bool exists = column < columns;
  Acc<T>* out = table + id * columns + column;
  Pack<Acc<T>, N> sum = {};
  if (accumulate && exists) {
#pragma unroll
    for (int i = 0; i < N; ++i) sum[i] = out[i];
  }
  for (int64_t at = begin;; at += kThreads) {
    const int64_t mine = at + threadIdx.x;
    rows[threadIdx.x] = mine < count && order.ids[mine] == id ? order.tokens[mine] : -1;
    __syncthreads();
    for (int r = 0; exists && r < kThreads && rows[r] >= 0; r += kTogether) {
      Pack<T, N> raw[kTogether];
#pragma unroll
      for (int k = 0; k < kTogether; ++k)
        if (rows[r + k] >= 0) raw[k] = LoadRaw<N>(dy + rows[r + k] * columns + column);
#pragma unroll
      for (int k = 0; k < kTogether; ++k) {
        if (rows[r + k] < 0) break;
        const Pack<Acc<T>, N> d = ConvertPack<Acc<T>>(raw[k]);
#pragma unroll
        for (int i = 0; i < N; ++i) sum[i] += d[i];
      }
    }
    const bool more = rows[kThreads - 1] >= 0;
    __syncthreads();
    if (!more) break;
  }
  if (!exists) return;
#pragma unroll
  for (int i = 0; i < N; ++i) out[i] = sum[i];
}

template <class T, int N>
__global__ void __launch_bounds__(kThreads)
    SumPositions(int64_t batch, int64_t tokens, int64_t columns, const T* dy, Acc<T>* table, bool accumulate) {
  const int64_t column = Column<N>(), token = blockIdx.x;
  if (column >= columns) return;
  Acc<T>* out = table + token * columns + column;
  Pack<Acc<T>, N> sum = {};
  if (accumulate) {
#pragma unroll
    for (int i = 0; i < N; ++i) sum[i] = out[i];
  }
#pragma unroll 4
  for (int64_t b = 0; b < batch; ++b) {
    const Pack<Acc<T>, N> d = Load<N>(dy + (b * tokens + token) * columns + column);
#pragma unroll
    for (int i = 0; i < N; ++i) sum[i] += d[i];
  }
#pragma unroll
  for (int i = 0; i < N; ++i) out[i] = sum[i];
}

/// Zeros from element `begin` on.
void Clear(const KernelContext& context, const Tensor& t, int64_t begin) {
  const Tensor part = t.Flat(begin, t.numel() - begin);
  if (part.numel() == 0) return;
  CheckCuda(cudaMemsetAsync(part.data, 0, static_cast<size_t>(part.bytes()), Stream(context)), "cudaMemsetAsync");
}

}  // namespace

void EmbeddingForward(const KernelContext& context, Tensor ids, Tensor tokens_table, Tensor positions_table, Tensor y) {
  const int64_t columns = detail::Columns(tokens_table);
  if (y.numel() == 0) return;
  const bool aligned = Aligned(tokens_table.data, positions_table.data, y.data);
  DispatchPacks(y.dtype, "EmbeddingForward", columns, aligned, [&](auto type, auto pack) {
    using T = decltype(type);
    Gather<T, pack><<<Grid<pack>(ids.numel(), columns), kThreads, 0, Stream(context)>>>(
        Elements<int32_t>(ids), static_cast<int>(detail::Columns(ids)), columns, Elements<T>(tokens_table),
        detail::Rows(tokens_table), Elements<T>(positions_table), Elements<T>(y));
    CheckLaunch("EmbeddingForward");
  });
}

void EmbeddingBackwardTokens(const KernelContext& context, Tensor ids, Tensor dy, Tensor dtable, bool accumulate) {
  const char* kernel = "EmbeddingBackwardTokens";
  const int64_t columns = detail::Columns(dy), vocabulary = detail::Rows(dtable), count = ids.numel();
  if (!accumulate) Clear(context, dtable, 0);
  if (dy.numel() == 0) return;
  detail::Check(count <= INT32_MAX && vocabulary < INT32_MAX, kernel,
                detail::Describe("ids", ids) + ", " + detail::Describe("dtable", dtable) + ": 2^31 tokens or rows");
  const TokenOrder order = SortTokens(context, kernel, Elements<int32_t>(ids), count, static_cast<int32_t>(vocabulary));
  DispatchPacks(dy.dtype, kernel, columns, Aligned(dy.data), [&](auto type, auto pack) {
    using T = decltype(type);
    SumTokens<T, pack><<<Grid<pack>(count, columns), kThreads, 0, Stream(context)>>>(
        order, count, vocabulary, columns, Elements<T>(dy), Elements<Acc<T>>(dtable), accumulate);
    CheckLaunch(kernel);
  });
}

void EmbeddingBackwardPositions(const KernelContext& context, Tensor dy, Tensor dtable, bool accumulate) {
  const char* kernel = "EmbeddingBackwardPositions";
  const int64_t batch = dy.shape[0], tokens = dy.shape[1], columns = dy.shape[2];
  if (!accumulate) Clear(context, dtable, tokens * columns);
  if (tokens * columns == 0) return;
  DispatchPacks(dy.dtype, kernel, columns, Aligned(dy.data), [&](auto type, auto pack) {
    using T = decltype(type);
    SumPositions<T, pack><<<Grid<pack>(tokens, columns), kThreads, 0, Stream(context)>>>(
        batch, tokens, columns, Elements<T>(dy), Elements<Acc<T>>(dtable), accumulate);
    CheckLaunch(kernel);
  });
}

}  // namespace ds::cuda
