// y = dropout(wte[ids] + wpe[t])
#include "kernels/embedding.h"
#include "runtime/base/error.h"
#include "runtime/segments/segment_base.h"

namespace ds {
namespace {

class EmbeddingSegment : public SegmentBase {
 public:
  EmbeddingSegment(const SegmentSpec& spec, const SegmentOptions& options)
      : SegmentBase(spec, options),
        tokens_table_(RequiredParam("tokens.weight")),
        positions_table_(model().position == PositionKind::learned ? RequiredParam("positions.weight") : -1) {
    if (positions_table_ >= 0 && tokens() > model().max_positions)
      throw RuntimeError(spec.name + ": " + std::to_string(tokens()) + " tokens a sample, but the model has " +
                         std::to_string(model().max_positions) + " positions");
  }

  void Forward(const StepContext& step, const SegmentIo& io) const override {
    Require(Pass::forward, "tokens", io.tokens, DType::i32, {samples(), tokens()});
    Require(Pass::forward, "y", io.y, compute(), SampleShape());
    RequireParams(Pass::forward, io);
    EmbeddingForward(step.kernel, io.tokens, io.params[tokens_table_],
                     positions_table_ < 0 ? Tensor() : io.params[positions_table_], io.y);
    if (DropoutActive(step)) ApplyDropout(step, DropoutPlace::embedding, io.y, {}, io.y);
  }

  void Recompute(const StepContext&, const SegmentIo&) const override {}      // saves nothing
  void BackwardInput(const StepContext&, const SegmentIo&) const override {}  // token ids have no gradient

  void BackwardWeight(const StepContext& step, const SegmentIo& io) const override {
    Require(Pass::backward_weight, "tokens", io.tokens, DType::i32, {samples(), tokens()});
    Require(Pass::backward_weight, "dy", io.dy, compute(), SampleShape());
    RequireGrads(io);
    Tensor dy = io.dy;
    if (DropoutActive(step)) {
      dy = Scratch(spec().name, io.scratch).Take(compute(), SampleShape());
      ApplyDropout(step, DropoutPlace::embedding, io.dy, {}, dy);
    }
    EmbeddingBackwardTokens(step.kernel, io.tokens, dy, io.grads[tokens_table_], io.accumulate);
    if (positions_table_ >= 0) EmbeddingBackwardPositions(step.kernel, dy, io.grads[positions_table_], io.accumulate);
  }

 private:
  const int tokens_table_, positions_table_;  // in params; -1: no learned positions
};

}  // namespace

std::unique_ptr<Segment> MakeEmbeddingSegment(const SegmentSpec& spec, const SegmentOptions& options) {
  return std::make_unique<EmbeddingSegment>(spec, options);
}

}  // namespace ds
