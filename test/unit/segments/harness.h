// One segment with every tensor that it needs, in memory that is poisoned before a pass writes it and guarded on both
// sides.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/segments/segment.h"

namespace ds::test {

/// Memory of one tensor between guard bytes. Poisoned: every byte 0xFF, which is NaN in every floating dtype.
class Buffer {
 public:
  Buffer(DType dtype, Shape shape);
  Buffer(Buffer&&) = default;  // the tensor follows its memory; a copy's would not
  Buffer& operator=(Buffer&&) = default;
  Tensor tensor() const { return tensor_; }
  void Poison();
  /// False when a byte outside the tensor was written.
  bool GuardsIntact() const;

  double Get(int64_t i) const;
  void Set(int64_t i, double value);  ///< rounded to the dtype
  std::vector<double> Values() const;
  std::vector<unsigned char> Bytes() const;

 private:
  std::vector<unsigned char> memory_;
  Tensor tensor_;
};

double ReadElement(const Tensor& t, int64_t i);
void WriteElement(const Tensor& t, int64_t i, double value);

/// A small model whose segments all have work to do. Names: "gpt2", "gpt2-exact-gelu", "gpt2-no-bias", "qkv-bias-only",
/// "llama", "llama-mqa", "rope-layer-norm".
ModelConfig SmallModel(const std::string& name, double dropout = 0);
std::vector<std::string> SmallModelNames();

class Harness {
 public:
  /// Parameters, x, dy, tokens and targets are random from fixed seeds and representable in `grain`, so that the same
  /// problem can be posed to several compute dtypes. reset_attention: attention stays within documents, of which every
  /// sample has some. recompute: what the segment saves is what it saves with that training.recompute. fp8:
  /// training.fp8.
  Harness(const ModelConfig& model, SegmentKind kind, DType compute, MicroBatchShape shape, DType grain,
          bool reset_attention = false, RecomputeMode recompute = RecomputeMode::none, bool fp8 = false);
  Harness(const ModelConfig& model, SegmentKind kind, DType compute = DType::f64, MicroBatchShape shape = {2, 5},
          bool reset_attention = false, RecomputeMode recompute = RecomputeMode::none, bool fp8 = false)
      : Harness(model, kind, compute, shape, compute, reset_attention, recompute, fp8) {}

  // Each pass is given the tensors that segment.h says it reads and writes, and no others. Outputs are not poisoned
  // between passes; Poison() does so for everything that passes write.
  void Forward();
  void Recompute();
  void BackwardInput();
  void BackwardWeight(bool accumulate = false);
  void All() { Poison(), Forward(), BackwardInput(), BackwardWeight(); }
  void Poison();
  bool GuardsIntact() const;

  /// What the backward passes differentiate: sum(y * dy); of the head: loss_scale / global_tokens * loss_sum.
  double Objective();

  /// Everything that passes write, by name, for comparisons: y, dx, saved, carried and gradients.
  std::vector<std::pair<std::string, const Buffer*>> Outputs() const;

  ModelConfig model;
  SegmentOptions options;
  SegmentSpec spec;
  std::unique_ptr<Segment> segment;
  StepContext step;
  Buffer tokens, targets, first_key, x, y, dy, dx, scratch;
  std::vector<std::string> param_names;  ///< a tied head's token table last
  std::vector<Buffer> params, grads, saved, carried;
  double loss_sum = 0;

 private:
  Tensor ScratchOf(int64_t bytes) const;
};

/// A number in (-1, 1) that depends on (seed, i) alone.
double Noise(uint64_t seed, int64_t i);

}  // namespace ds::test
