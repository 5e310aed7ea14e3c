#include "runtime/plan/products.h"

#include <algorithm>

namespace ds {
namespace {

/// Logits of blocks of rows: what the head does where they do not become their gradients in place.
void AddBlocks(MatMulKey key, DType wide, std::set<MatMulKey>& keys) {
  const int64_t rows = key.m;
  key.c = wide;
  for (const int64_t block : {std::min(rows, kHeadRows), rows % kHeadRows}) {
    key.m = block;
    if (block > 0) keys.insert(key);
  }
}

/// What a GPU may compute in the product's place.
void AddFused(const ProductSpec& product, MatMulKey key, std::set<MatMulKey>& keys) {
  if (product.adds) {
    key.accumulate = true;
    keys.insert(key);
  }
  if (product.fused == MatMulEpilogue::none) return;
  key.epilogue = product.fused;
  keys.insert(key);
}

}  // namespace

std::optional<Pass> PassOf(ActionKind kind) {
  switch (kind) {
    case ActionKind::forward:
      return Pass::forward;
    case ActionKind::recompute:
      return Pass::recompute;
    case ActionKind::backward_input:
      return Pass::backward_input;
    case ActionKind::backward_weight:
      return Pass::backward_weight;
    default:
      return std::nullopt;
  }
}

std::set<MatMulKey> MatMulKeysOf(const ModelLayout& layout, const Plan& plan) {
  const bool cuda = plan.options.device == DeviceKind::cuda;
  const DType wide = plan.options.compute == DType::f64 ? DType::f64 : DType::f32;
  const bool in_place = plan.options.training && (cuda || plan.options.compute == wide);
  std::set<MatMulKey> keys;
  for (const Action& action : plan.actions) {
    const std::optional<Pass> pass = PassOf(action.kind);
    if (!pass) continue;
    const SegmentSpec& segment = layout.segments[action.segment];
    for (const ProductSpec& product : segment.products) {
      if (product.pass != *pass) continue;
      MatMulKey key = product.key;
      key.accumulate = *pass == Pass::backward_weight && action.accumulate;
      const bool logits = segment.kind == SegmentKind::head && (*pass == Pass::forward || *pass == Pass::recompute);
      if (logits && !in_place) {
        AddBlocks(key, wide, keys);
        continue;
      }
      keys.insert(key);
      if (cuda) AddFused(product, key, keys);
    }
  }
  return keys;
}

double ModelFlopsOfStep(const ModelLayout& layout, const PlanOptions& options) {
  double forward = 0;
  for (const SegmentSpec& segment : layout.segments) {
    for (const ProductSpec& product : segment.products)
      if (product.pass == Pass::forward) forward += ProductFlops(product.key);
    forward += 2 * segment.attention.product_flops;
  }
  return 3 * forward * static_cast<double>(options.micro_batches) / options.pipeline.stages;
}

}  // namespace ds
