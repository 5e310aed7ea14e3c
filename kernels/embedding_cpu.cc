#include "kernels/embedding.h"

#include <algorithm>

#include "kernels/convert.h"
#include "kernels/dispatch.h"
#include "kernels/parallel.h"

namespace ds {
namespace {

using detail::Acc;
using detail::kColumnsPerSlice;
using detail::kRowsPerBlock;

void CheckIdType(const char* kernel, const Tensor& ids) {
  detail::CheckMemory(kernel, "ids", ids);
  if (ids.dtype != DType::i32) detail::Check(false, kernel, detail::Describe("ids", ids) + ", expected i32");
}

/// Throws with the id and its place unless every id is in [0, vocabulary).
void CheckIds(const char* kernel, const Tensor& ids, int64_t vocabulary) {
  const int32_t* id = ids.as<int32_t>();
  const int64_t tokens = detail::Columns(ids);
  for (int64_t i = 0; i < ids.numel(); ++i)
    if (id[i] < 0 || id[i] >= vocabulary)
      detail::Check(false, kernel,
                    "id " + std::to_string(id[i]) + " of sample " + std::to_string(i / tokens) + ", token " +
                        std::to_string(i % tokens) + " is outside the table of " + std::to_string(vocabulary) +
                        " rows");
}

/// out[0..n) += the gradients in `in`.
template <class T>
void AddTo(Acc<T>* out, const T* in, int64_t n) {
  Acc<T> buffer[kColumnsPerSlice];
  const Acc<T>* d = detail::Load(in, buffer, n);
#pragma omp simd
  for (int64_t j = 0; j < n; ++j) out[j] += d[j];
}

template <class A>
void Zero(const KernelContext& context, A* data, int64_t n) {
  detail::ParallelBlocks(context, n, detail::kElementsPerBlock,
                         [&](int64_t begin, int64_t end) { std::fill(data + begin, data + end, A(0)); });
}

}  // namespace

void EmbeddingForward(const KernelContext& context, Tensor ids, Tensor tokens_table, Tensor positions_table, Tensor y) {
  const char* kernel = "EmbeddingForward";
  detail::CheckFloating(kernel, "tokens_table", tokens_table);
  const int64_t columns = detail::Columns(tokens_table), tokens = detail::Columns(ids);
  CheckIdType(kernel, ids);
  detail::CheckMatrix(kernel, "y", y, tokens_table.dtype, ids.numel(), columns);
  if (positions_table) {
    detail::CheckMatrix(kernel, "positions_table", positions_table, y.dtype, detail::Rows(positions_table), columns);
    detail::Check(
        detail::Rows(positions_table) >= tokens, kernel,
        detail::Describe("positions_table", positions_table) + " for samples of " + std::to_string(tokens) + " tokens");
  }
  if (detail::RanOnCuda(kernel, cuda::EmbeddingForward, context, ids, tokens_table, positions_table, y)) return;
  CheckIds(kernel, ids, detail::Rows(tokens_table));
  const int32_t* id = ids.as<int32_t>();
  detail::DispatchFloating(y.dtype, kernel, [&](auto type) {
    using T = decltype(type);
    const T* table = tokens_table.as<T>();
    const T* positions = positions_table ? positions_table.as<T>() : nullptr;
    T* out = y.as<T>();
    detail::ParallelBlocks(context, ids.numel(), kRowsPerBlock, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const T* row = table + id[i] * columns;
        if (!positions) {
          detail::Convert(row, out + i * columns, columns);
          continue;
        }
        for (int64_t at = 0; at < columns; at += kColumnsPerSlice) {
          const int64_t n = std::min(kColumnsPerSlice, columns - at);
          Acc<T> buffer[kColumnsPerSlice], sum[kColumnsPerSlice];
          detail::Convert(row + at, sum, n);
          const Acc<T>* position = detail::Load(positions + i % tokens * columns + at, buffer, n);
#pragma omp simd
          for (int64_t j = 0; j < n; ++j) sum[j] += position[j];
          detail::Store(sum, out + i * columns + at, n);
        }
      }
    });
  });
}

void EmbeddingBackwardTokens(const KernelContext& context, Tensor ids, Tensor dy, Tensor dtable, bool accumulate) {
  const char* kernel = "EmbeddingBackwardTokens";
  detail::CheckFloating(kernel, "dy", dy);
  const int64_t columns = detail::Columns(dy), rows = detail::Rows(dtable);
  CheckIdType(kernel, ids);
  detail::CheckMatrix(kernel, "dy", dy, dy.dtype, ids.numel(), columns);
  detail::CheckMatrix(kernel, "dtable", dtable, detail::AccumulateType(dy.dtype), rows, columns);
  if (detail::RanOnCuda(kernel, cuda::EmbeddingBackwardTokens, context, ids, dy, dtable, accumulate)) return;
  CheckIds(kernel, ids, rows);
  const int32_t* id = ids.as<int32_t>();
  detail::DispatchFloating(dy.dtype, kernel, [&](auto type) {
    using T = decltype(type);
    Acc<T>* table = dtable.as<Acc<T>>();
    const T* in = dy.as<T>();
    if (!accumulate) Zero(context, table, dtable.numel());
    // A thread owns slices of columns and goes through all tokens in order: no two threads add to one element.
    detail::ParallelBlocks(context, columns, kColumnsPerSlice, [&](int64_t begin, int64_t end) {
      for (int64_t i = 0; i < ids.numel(); ++i)
        AddTo(table + id[i] * columns + begin, in + i * columns + begin, end - begin);
    });
  });
}

void EmbeddingBackwardPositions(const KernelContext& context, Tensor dy, Tensor dtable, bool accumulate) {
  const char* kernel = "EmbeddingBackwardPositions";
  detail::CheckFloating(kernel, "dy", dy);
  detail::Check(dy.shape.rank() == 3, kernel, detail::Describe("dy", dy) + ", expected [batch, tokens, columns]");
  const int64_t batch = dy.shape[0], tokens = dy.shape[1], columns = dy.shape[2], rows = detail::Rows(dtable);
  detail::CheckMatrix(kernel, "dtable", dtable, detail::AccumulateType(dy.dtype), rows, columns);
  detail::Check(rows >= tokens, kernel,
                detail::Describe("dtable", dtable) + " for samples of " + std::to_string(tokens) + " tokens");
  if (detail::RanOnCuda(kernel, cuda::EmbeddingBackwardPositions, context, dy, dtable, accumulate)) return;
  detail::DispatchFloating(dy.dtype, kernel, [&](auto type) {
    using T = decltype(type);
    Acc<T>* table = dtable.as<Acc<T>>();
    const T* in = dy.as<T>();
    if (!accumulate) Zero(context, table, dtable.numel());
    detail::ParallelBlocks(context, tokens, kRowsPerBlock, [&](int64_t begin, int64_t end) {
      for (int64_t b = 0; b < batch; ++b)
        for (int64_t t = begin; t < end; ++t)
          for (int64_t at = 0; at < columns; at += kColumnsPerSlice)
            AddTo(table + t * columns + at, in + (b * tokens + t) * columns + at,
                  std::min(kColumnsPerSlice, columns - at));
    });
  });
}

}  // namespace ds
