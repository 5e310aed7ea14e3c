#include "runtime/train/matmul_agreement.h"

#include <algorithm>
#include <vector>

namespace ds {
namespace {

/// Of a product in the table that is sent: whether it has an algorithm, and its words.
constexpr size_t kWords = 1 + std::tuple_size_v<decltype(MatMulAlgorithm::words)>;

}  // namespace

MatMulChoices AgreeOnMatMulChoices(const std::set<MatMulKey>& keys, const TimeMatMul& time, Communicator& control) {
  if (keys.empty()) return {};
  std::vector<int64_t> table(keys.size() * kWords);
  if (control.rank() == 0) {
    size_t at = 0;
    for (const MatMulKey& key : keys) {
      if (const std::optional<MatMulAlgorithm> algorithm = time(key)) {
        table[at] = 1;
        std::copy(algorithm->words.begin(), algorithm->words.end(),
                  table.begin() + static_cast<std::ptrdiff_t>(at) + 1);
      }
      at += kWords;
    }
  }
  if (control.size() > 1) control.Broadcast(Tensor::Of(table.data(), Shape{static_cast<int64_t>(table.size())}), 0);
  MatMulChoices choices;
  size_t at = 0;
  for (const MatMulKey& key : keys) {
    if (table[at] != 0) {
      MatMulAlgorithm& algorithm = choices[key];
      std::copy_n(table.begin() + static_cast<std::ptrdiff_t>(at) + 1, kWords - 1, algorithm.words.begin());
    }
    at += kWords;
  }
  return choices;
}

}  // namespace ds
