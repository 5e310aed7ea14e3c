// Which algorithm of the GPU library computes a matrix product: measured ones, by the product's shape.
//
// Without a table every product takes the library's first suggestion. Both are fixed: a product has one algorithm as
// long as library, device and table are the same, and so its bits are the same in every run. Algorithms differ in the
// order of their sums, so another table may change bits.
//
// Every algorithm that is ever used sums in a fixed order: none splits K other than with fp32 (fp64) partial sums in
// the workspace, added in a separate step.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "kernels/context.h"
#include "kernels/dtype.h"

namespace ds {

/// What a product does with its sums before they are stored.
enum class MatMulEpilogue : uint8_t {
  none,
  bias,           ///< adds a bias
  gelu,           ///< stores them, and their GELU (tanh) as the result
  bias_gelu,      ///< the same after adding a bias
  gelu_backward,  ///< multiplies by the derivative of GELU (tanh) at saved values
};

/// A product c[m, n] = op(a)[m, k] * op(b)[k, n] of dense matrices that start at multiples of 16 bytes. Leading
/// dimensions follow from it. `ab` is the dtype of both, but f8_e5m2 that of a alone: b is then f8_e4m3, since
/// libraries know no product of two E5M2. Products in 8 bits are of a as stored and b transposed.
struct MatMulKey {
  int64_t m = 0, n = 0, k = 0;
  DType ab = DType::f32, c = DType::f32;
  bool transpose_a = false, transpose_b = false, accumulate = false;
  MatMulEpilogue epilogue = MatMulEpilogue::none;
  auto operator<=>(const MatMulKey&) const = default;
};

constexpr bool IsFp8(DType t) { return t == DType::f8_e4m3 || t == DType::f8_e5m2; }
/// The dtype of b.
constexpr DType TypeOfB(DType ab) { return ab == DType::f8_e5m2 ? DType::f8_e4m3 : ab; }

/// An algorithm as the library writes it down. Means the same to the same version of the library only.
struct MatMulAlgorithm {
  std::array<uint64_t, 8> words{};
  bool operator==(const MatMulAlgorithm&) const = default;
};

using MatMulChoices = std::map<MatMulKey, MatMulAlgorithm>;

/// The version of the library that multiplies on GPUs; 0 in programs without GPU code.
int64_t MatMulLibraryVersion();

/// Sets the table of this process, on all its devices; an empty one takes it away. Products that are not in it take
/// the library's first suggestion. `library_version` is that of the library that wrote the algorithms. Throws
/// std::invalid_argument when it is not this program's. Not to be called while kernels are.
void SetMatMulChoices(int64_t library_version, MatMulChoices choices);

struct MatMulCandidate {
  MatMulAlgorithm algorithm;
  double seconds = 0;           ///< of one product, on the device
  int64_t workspace_bytes = 0;  ///< that it uses of MatMulWorkspaceBytes()
  std::string description;      ///< "algorithm 66, tile 24, ...": for people
};

/// Times up to `limit` algorithms that the library suggests for a product on the current device, its first suggestion
/// among them, on random matrices; the fastest comes first. Empty where the library has none. Allocates the matrices
/// and waits for the device: for programs that measure machines. Throws std::runtime_error without GPU code.
std::vector<MatMulCandidate> TimeMatMulCandidates(const KernelContext& context, const MatMulKey& key, int limit = 16);

}  // namespace ds
