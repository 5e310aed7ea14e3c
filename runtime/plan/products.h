// Which matrix products a plan's segments multiply: what a table of algorithms (kernels/matmul_choice.h) must name.
#pragma once

#include <optional>
#include <set>

#include "runtime/plan/plan.h"

namespace ds {

/// The pass of a segment that the action runs; nullopt: it runs none.
std::optional<Pass> PassOf(ActionKind kind);

/// 2 m n k.
inline double ProductFlops(const MatMulKey& key) {
  return 2.0 * static_cast<double>(key.m) * static_cast<double>(key.n) * static_cast<double>(key.k);
}

/// The products of the plan's compute actions, each once. For GPUs those that are fused with what follows
/// (ProductSpec) stand beside the same alone, which takes their place where the library cannot fuse. A head that trains
/// on a CPU in 16 bits, or does not train, multiplies kHeadRows rows at a time into fp32.
std::set<MatMulKey> MatMulKeysOf(const ModelLayout& layout, const Plan& plan);

/// Model FLOPs of one step on one rank: of the matrix products and attention that the model's mathematics has. The
/// forward's times three, since the backward of each product is two of its size. Recomputation (of recompute, and of
/// attention's scores in the backward), embedding look-ups, norms and the optimizer do not count. Causal attention
/// counts half of the scores. Of a pipeline every rank counts an equal share of the model, whatever its stage computes.
double ModelFlopsOfStep(const ModelLayout& layout, const PlanOptions& options);

}  // namespace ds
