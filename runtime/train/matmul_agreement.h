// Algorithms of matrix products that are chosen when a job starts, the same on every rank.
#pragma once

#include <functional>
#include <optional>
#include <set>

#include "kernels/matmul_choice.h"
#include "runtime/comm/communicator.h"

namespace ds {

/// The fastest algorithm of a product; nullopt: the library has none.
using TimeMatMul = std::function<std::optional<MatMulAlgorithm>(const MatMulKey&)>;

/// Rank 0 times every product; all ranks return what it found. Times differ from run to run and from GPU to GPU, and
/// ranks that took different algorithms would add in different orders. Collective: the same `keys` on every rank.
MatMulChoices AgreeOnMatMulChoices(const std::set<MatMulKey>& keys, const TimeMatMul& time, Communicator& control);

}  // namespace ds
