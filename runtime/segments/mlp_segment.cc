// y = x + dropout(down(activation(up(norm(x)))))
#include "kernels/activation.h"
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
        activated_(Swiglu() ? TensorIndex(spec.saved, "activated") : RequiredTensor(spec.saved, "activated")),
        dpre_(RequiredTensor(spec.carried, "dpre")) {}

  void Forward(const StepContext& step, const SegmentIo& io) const override {
    Require(Pass::forward, "y", io.y, compute(), SampleShape());
    WriteSaved(Pass::forward, step, io);
    Scratch scratch(spec().name, io.scratch);
    const Tensor activated = Activated(step, io, scratch);
    WriteY(step, io, down_, activated, scratch);
  }

  void BackwardInput(const StepContext& step, const SegmentIo& io) const override {
    RequireBackward(Pass::backward_input, io);
    const Tensor dy = WriteBranchDy(step, io);
    if (Swiglu()) {
      Tensor dactivated = Scratch(spec().name, io.scratch).Take(compute(), ActivatedShape());
      LinearBackwardInput(step, down_, io, dy, dactivated);
      SwigluBackward(step.kernel, dactivated, io.saved[pre_], io.carried[dpre_]);
    } else {
      LinearGeluBackwardInput(step, down_, io, Gelu(), dy, io.saved[pre_], io.carried[dpre_]);
    }
    LinearBackwardInput(step, up_, io, io.carried[dpre_], io.carried[norm_.dnormed]);
    WriteDx(step, io);
  }

  void BackwardWeight(const StepContext& step, const SegmentIo& io) const override {
    RequireBackward(Pass::backward_weight, io);
    Scratch scratch(spec().name, io.scratch);
    LinearBackwardWeight(step, down_, io, BranchDy(step, io), Activated(step, io, scratch));
    LinearBackwardWeight(step, up_, io, io.carried[dpre_], io.saved[norm_.normed]);
    NormBackwardWeight(step, model(), norm_, io, Rows(io.x));
  }

 protected:
  void WriteBranchSaved(const StepContext& step, const SegmentIo& io) const override {
    if (Swiglu()) {
      LinearForward(step, up_, io, io.saved[norm_.normed], io.saved[pre_]);
      if (activated_ >= 0) SwigluForward(step.kernel, io.saved[pre_], io.saved[activated_]);
    } else {
      LinearGeluForward(step, up_, io, Gelu(), io.saved[norm_.normed], io.saved[pre_], io.saved[activated_]);
    }
  }

 private:
  bool Swiglu() const { return model().activation == Activation::swiglu; }

  /// The saved activation [N, F]; where SwiGLU's is not, computed from pre into the scratch.
  Tensor Activated(const StepContext& step, const SegmentIo& io, Scratch& scratch) const {
    if (activated_ >= 0) return io.saved[activated_];
    Tensor activated = scratch.Take(compute(), ActivatedShape());
    SwigluForward(step.kernel, io.saved[pre_], activated);
    return activated;
  }

  GeluKind Gelu() const { return model().activation == Activation::gelu ? GeluKind::exact : GeluKind::tanh; }
  Shape ActivatedShape() const { return {rows(), model().ffn}; }

  const LinearIndices up_, down_;
  const int pre_, activated_, dpre_;  // activated_ -1: SwiGLU's, computed by every pass that reads it
};

}  // namespace

std::unique_ptr<Segment> MakeMlpSegment(const SegmentSpec& spec, const SegmentOptions& options) {
  return std::make_unique<MlpSegment>(spec, options);
}

}  // namespace ds
