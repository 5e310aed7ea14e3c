// y = x + dropout(down(activation(up(norm(x)))))
#include "kernels/activation.h"
#include "kernels/linear.h"
#include "runtime/segments/branch_segment.h"

namespace ds {
namespace {

class MlpSegment : public BranchSegment {
 public:
  MlpSegment(const SegmentSpec& spec, const SegmentOptions& options)
      : BranchSegment(spec, options, DropoutPlace::mlp_residual),
        up_(FindLinear(Swiglu() ? "gate_up" : "up")),
        down_(FindLinear("down")),
        pre_(RequiredTensor(spec.saved, "pre")),
        dpre_(RequiredTensor(spec.carried, "dpre")) {}

  void Forward(const StepContext& step, const SegmentIo& io) const override {
    Require(Pass::forward, "y", io.y, compute(), SampleShape());
    WriteSaved(Pass::forward, step, io);
    Scratch scratch(spec().name, io.scratch);
    Tensor activated = scratch.Take(compute(), ActivatedShape());
    if (Swiglu()) SwigluForward(step.kernel, io.saved[pre_], activated);  // GELU: WriteBranchSaved did it
    WriteY(step, io, down_, activated, scratch);
  }

  void BackwardInput(const StepContext& step, const SegmentIo& io) const override {
    RequireBackward(Pass::backward_input, io);
    const Tensor dy = WriteBranchDy(step, io);
    if (Swiglu()) {
      Tensor dactivated = ScratchActivated(io);
      LinearBackwardInput(step, down_, io, dy, dactivated);
      SwigluBackward(step.kernel, dactivated, io.saved[pre_], io.carried[dpre_]);
    } else {
      LinearGeluBackwardInput(step.kernel, Gelu(), dy, io.params[down_.weight], io.saved[pre_], io.carried[dpre_]);
    }
    LinearBackwardInput(step, up_, io, io.carried[dpre_], io.carried[norm_.dnormed]);
    WriteDx(step, io);
  }

  void BackwardWeight(const StepContext& step, const SegmentIo& io) const override {
    RequireBackward(Pass::backward_weight, io);
    Tensor activated = ScratchActivated(io);
    Activate(step, io, activated);
    LinearBackwardWeight(step, down_, io, BranchDy(step, io), activated);
    LinearBackwardWeight(step, up_, io, io.carried[dpre_], io.saved[norm_.normed]);
    NormBackwardWeight(step, model(), norm_, io, Rows(io.x));
  }

 protected:
  /// With GELU also the activation, into the scratch where there is one. A GPU may compute both in one kernel, and then
  /// pre anew by the same one, since a product on its own may add in another order: there Recompute has scratch.
  void WriteBranchSaved(const StepContext& step, const SegmentIo& io) const override {
    if (Swiglu() || !io.scratch) {
      LinearForward(step, up_, io, io.saved[norm_.normed], io.saved[pre_]);
    } else {
      LinearGeluForward(step.kernel, Gelu(), io.saved[norm_.normed], io.params[up_.weight],
                        up_.bias >= 0 ? io.params[up_.bias] : Tensor(), io.saved[pre_], ScratchActivated(io));
    }
  }

 private:
  bool Swiglu() const { return model().activation == Activation::swiglu; }

  /// The first tensor of the scratch, [N, F].
  Tensor ScratchActivated(const SegmentIo& io) const {
    return Scratch(spec().name, io.scratch).Take(compute(), ActivatedShape());
  }

  /// The activation is computed again rather than saved: it costs no matrix product. Where it was fused with one it
  /// came from pre before that was rounded: the two differ by less than a rounding of pre.
  void Activate(const StepContext& step, const SegmentIo& io, Tensor activated) const {
    if (Swiglu()) {
      SwigluForward(step.kernel, io.saved[pre_], activated);
    } else {
      GeluForward(step.kernel, Gelu(), io.saved[pre_], activated);
    }
  }

  GeluKind Gelu() const { return model().activation == Activation::gelu ? GeluKind::exact : GeluKind::tanh; }
  Shape ActivatedShape() const { return {rows(), model().ffn}; }

  const LinearIndices up_, down_;
  const int pre_, dpre_;
};

}  // namespace

std::unique_ptr<Segment> MakeMlpSegment(const SegmentSpec& spec, const SegmentOptions& options) {
  return std::make_unique<MlpSegment>(spec, options);
}

}  // namespace ds
