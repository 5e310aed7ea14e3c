// Sums over the rows of a matrix, one a column: gradients of biases and of normalisation weights. Internal to the CPU
// kernels.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/parallel.h"
#include "kernels/widest.h"
#include "kernels/workspace.h"

namespace ds::detail {

/// out[s][j] (+)= sum over rows of what add_row(row, begin, n, sums) adds to sums[s][j - begin], for S sums at once.
/// A thread owns slices of columns [begin, begin + n) and goes through the rows in order; rows are summed in blocks of
/// kRowsPerPartialSum and the blocks' sums in order, so the order does not depend on threads and rounding grows slowly.
template <int S, class A, class AddRow>
void SumOverRows(const KernelContext& context, int64_t rows, int64_t columns, A* const (&out)[S], bool accumulate,
                 const AddRow& add_row) {
  ParallelBlocks(context, columns, kColumnsPerSlice, [&](int64_t begin, int64_t end) {
    const int64_t n = end - begin;
    A total[S][kColumnsPerSlice] = {};
    for (int64_t block = 0; block < rows; block += kRowsPerPartialSum) {
      A partial[S][kColumnsPerSlice] = {};
      Widest([&] {
        for (int64_t row = block; row < std::min(rows, block + kRowsPerPartialSum); ++row)
          add_row(row, begin, n, partial);
      });
      for (int s = 0; s < S; ++s)
        for (int64_t j = 0; j < kColumnsPerSlice; ++j) total[s][j] += partial[s][j];
    }
    for (int s = 0; s < S; ++s)
      for (int64_t j = 0; j < n; ++j) out[s][begin + j] = accumulate ? out[s][begin + j] + total[s][j] : total[s][j];
  });
}

}  // namespace ds::detail
