// What the four segments share: finding tensors by name in a SegmentSpec, checking what a pass was given, cutting
// scratch, and dropout.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/random.h"
#include "runtime/segments/linear.h"
#include "runtime/segments/norm.h"
#include "runtime/segments/segment.h"

namespace ds {

/// Where in a segment a dropout stands.
enum class DropoutPlace { embedding = 1, attention_probabilities = 2, attention_residual = 3, mlp_residual = 4 };

/// The stream of one dropout of one step. The top bit keeps these sites apart from those of the initial weights.
RandomStream DropoutStream(const StepContext& step, int64_t layer, DropoutPlace place);

/// Cuts the tensors of a pass from its scratch, in order, each aligned to 64 bytes.
class Scratch {
 public:
  Scratch(const std::string& segment, Tensor bytes) : segment_(segment), bytes_(bytes) {}
  /// Throws RuntimeError when the scratch is too small.
  Tensor Take(DType dtype, Shape shape);

 private:
  const std::string& segment_;
  Tensor bytes_;
  int64_t used_ = 0;
};

class SegmentBase : public Segment {
 protected:
  SegmentBase(const SegmentSpec& spec, const SegmentOptions& options);

  /// Index in SegmentSpec::params of the parameter whose name is `suffix` or ends with "." + suffix; -1 when there is
  /// none.
  int ParamIndex(const std::string& suffix) const;
  int RequiredParam(const std::string& suffix) const;
  /// Index in `tensors` (spec().saved or spec().carried) of the tensor called `name`; -1 when there is none.
  static int TensorIndex(const std::vector<TensorSpec>& tensors, const std::string& name);
  int RequiredTensor(const std::vector<TensorSpec>& tensors, const std::string& name) const;

  /// "norm.weight" and "norm.bias" with the tensors that the norm writes.
  NormIndices FindNorm() const;
  /// `name`.weight and, where there is one, `name`.bias; its products are of 8 bits where the SegmentSpec and the
  /// layer's shape say so.
  LinearIndices FindLinear(const std::string& name) const;

  /// Throw RuntimeError, naming segment, pass and tensor, when a tensor is absent or has another dtype or shape.
  void Require(Pass pass, const std::string& what, const Tensor& t, DType dtype, Shape shape) const;
  void RequireAll(Pass pass, const std::string& what, const std::vector<Tensor>& tensors,
                  const std::vector<TensorSpec>& specs) const;
  /// params, and for backward_weight grads: SegmentSpec's, then the token table of a tied head.
  void RequireParams(Pass pass, const SegmentIo& io) const;
  void RequireGrads(const SegmentIo& io) const;

  bool DropoutActive(const StepContext& step) const { return step.training && options_.model.dropout > 0; }
  /// y = dropout(x) (+ residual) over [N, D]; x, residual and y have N * D elements.
  void ApplyDropout(const StepContext& step, DropoutPlace place, Tensor x, Tensor residual, Tensor y) const;

  const SegmentSpec& spec() const { return spec_; }
  const ModelConfig& model() const { return options_.model; }
  DType compute() const { return options_.compute; }
  Device device() const { return options_.device; }
  /// The dtype of statistics, losses and gradients of parameters.
  DType wide() const { return options_.compute == DType::f64 ? DType::f64 : DType::f32; }
  int64_t samples() const { return options_.shape.samples; }
  int64_t tokens() const { return options_.shape.tokens; }
  int64_t rows() const { return samples() * tokens(); }
  int64_t hidden() const { return options_.model.hidden; }
  /// [B, T, D] and [N, D].
  Shape SampleShape() const { return {samples(), tokens(), hidden()}; }
  Shape RowShape() const { return {rows(), hidden()}; }
  Tensor Rows(const Tensor& t) const { return t.View(RowShape()); }

 private:
  SegmentSpec spec_;
  SegmentOptions options_;
};

/// The implementations, one a kind of segment.
std::unique_ptr<Segment> MakeEmbeddingSegment(const SegmentSpec& spec, const SegmentOptions& options);
std::unique_ptr<Segment> MakeAttentionSegment(const SegmentSpec& spec, const SegmentOptions& options);
std::unique_ptr<Segment> MakeMlpSegment(const SegmentSpec& spec, const SegmentOptions& options);
std::unique_ptr<Segment> MakeHeadSegment(const SegmentSpec& spec, const SegmentOptions& options);

}  // namespace ds
