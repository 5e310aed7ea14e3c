// y = x + dropout(proj(attention(rope(qkv(norm(x))))))
#include "kernels/attention.h"
#include "kernels/rope.h"
#include "runtime/segments/branch_segment.h"
#include "runtime/segments/rope_tables.h"

namespace ds {
namespace {

class AttentionSegment : public BranchSegment {
 public:
  AttentionSegment(const SegmentSpec& spec, const SegmentOptions& options)
      : BranchSegment(spec, options, DropoutPlace::attention_residual),
        qkv_layer_(FindLinear("qkv")),
        proj_layer_(FindLinear("proj")),
        qkv_(RequiredTensor(spec.saved, "qkv")),
        attended_(RequiredTensor(spec.saved, "attended")),
        log_sum_exp_(RequiredTensor(spec.saved, "log_sum_exp")),
        dqkv_(RequiredTensor(spec.carried, "dqkv")),
        shape_{samples(), tokens(), model().heads, model().kv_heads, model().head_size()} {
    if (model().position == PositionKind::rope)
      rope_ = SharedRopeTables(model().rope_theta, tokens(), model().head_size(), wide(), options.gpu);
  }

  void Forward(const StepContext& step, const SegmentIo& io) const override {
    Require(Pass::forward, "y", io.y, compute(), SampleShape());
    WriteSaved(Pass::forward, step, io);
    Scratch scratch(spec().name, io.scratch);
    WriteY(step, io, proj_layer_, io.saved[attended_], scratch);
  }

  void BackwardInput(const StepContext& step, const SegmentIo& io) const override {
    RequireBackward(Pass::backward_input, io);
    Tensor dattended = Scratch(spec().name, io.scratch).Take(compute(), spec().saved[attended_].shape);
    LinearBackwardInput(step, proj_layer_, io, WriteBranchDy(step, io), dattended);
    Tensor dqkv = Heads(io.carried[dqkv_]);
    const Tensor first_key = FirstKey(Pass::backward_input, io);
    AttentionBackward(step.kernel, shape_, Attended(dattended), Heads(io.saved[qkv_]), Attended(io.saved[attended_]),
                      io.saved[log_sum_exp_], ProbabilityDropout(step), dqkv, first_key);
    if (rope_) Rope(step.kernel, dqkv, RotatedHeads(), rope_->cos(), rope_->sin(), /*inverse=*/true);
    LinearBackwardInput(step, qkv_layer_, io, io.carried[dqkv_], io.carried[norm_.dnormed]);
    WriteDx(step, io);
  }

  void BackwardWeight(const StepContext& step, const SegmentIo& io) const override {
    RequireBackward(Pass::backward_weight, io);
    LinearBackwardWeight(step, proj_layer_, io, BranchDy(step, io), io.saved[attended_]);
    LinearBackwardWeight(step, qkv_layer_, io, io.carried[dqkv_], io.saved[norm_.normed]);
    NormBackwardWeight(step, model(), norm_, io, Rows(io.x));
  }

 protected:
  void WriteBranchSaved(const StepContext& step, const SegmentIo& io) const override {
    LinearForward(step, qkv_layer_, io, io.saved[norm_.normed], io.saved[qkv_]);
    Tensor qkv = Heads(io.saved[qkv_]);
    if (rope_) Rope(step.kernel, qkv, RotatedHeads(), rope_->cos(), rope_->sin(), /*inverse=*/false);
    AttentionForward(step.kernel, shape_, qkv, ProbabilityDropout(step), Attended(io.saved[attended_]),
                     io.saved[log_sum_exp_], FirstKey(io.y ? Pass::forward : Pass::recompute, io));
  }

 private:
  AttentionDropout ProbabilityDropout(const StepContext& step) const {
    if (!DropoutActive(step)) return {};
    return {static_cast<float>(model().dropout),
            DropoutStream(step, spec().layer, DropoutPlace::attention_probabilities),
            static_cast<uint64_t>(step.first_sample)};
  }

  /// Absent unless attention stays within documents.
  Tensor FirstKey(Pass pass, const SegmentIo& io) const {
    if (!spec().reset_attention) return {};
    Require(pass, "first_key", io.first_key, DType::i32, {samples(), tokens()});
    return io.first_key;
  }

  int64_t RotatedHeads() const { return shape_.heads + shape_.kv_heads; }  // queries and keys
  Tensor Heads(const Tensor& qkv) const {
    return qkv.View({shape_.batch, shape_.tokens, shape_.heads + 2 * shape_.kv_heads, shape_.head_size});
  }
  Tensor Attended(const Tensor& t) const {
    return t.View({shape_.batch, shape_.tokens, shape_.heads * shape_.head_size});
  }

  const LinearIndices qkv_layer_, proj_layer_;
  const int qkv_, attended_, log_sum_exp_, dqkv_;
  const AttentionShape shape_;
  std::shared_ptr<const RopeTables> rope_;  // null: learned positions
};

}  // namespace

std::unique_ptr<Segment> MakeAttentionSegment(const SegmentSpec& spec, const SegmentOptions& options) {
  return std::make_unique<AttentionSegment>(spec, options);
}

}  // namespace ds
