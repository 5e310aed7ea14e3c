// y = x + dropout(down(activation(up(norm(x)))))
#include "kernels/activation.h"
#include "runtime/segments/branch_segment.h"

namespace ds {
namespace {

class MlpSegment : public BranchSegment {
 public:
  MlpSegment(const SegmentSpec& spec, const SegmentOptions& options)
      : BranchSegment(spec, options, DropoutPlace::mlp_residual),
        up_(FindLinear(model().activation == Activation::swiglu ? "gate_up" : "up")),
        down_(FindLinear("down")),
        pre_(RequiredTensor(spec.saved, "pre")),
        dpre_(RequiredTensor(spec.carried, "dpre")) {}

  void Forward(const StepContext& step, const SegmentIo& io) const override {
    Require(Pass::forward, "y", io.y, compute(), SampleShape());
    WriteSaved(Pass::forward, step, io);
    Scratch scratch(spec().name, io.scratch);
    Tensor activated = scratch.Take(compute(), ActivatedShape());
    Tensor projection = scratch.Take(compute(), RowShape());
    Activate(step, io, activated);
    LinearForward(step, down_, io, activated, projection);
    AddBranch(step, io, projection);
  }

  void BackwardInput(const StepContext& step, const SegmentIo& io) const override {
    RequireBackward(Pass::backward_input, io);
    Tensor dactivated = Scratch(spec().name, io.scratch).Take(compute(), ActivatedShape());
    LinearBackwardInput(step, down_, io, WriteBranchDy(step, io), dactivated);
    if (model().activation == Activation::swiglu) {
      SwigluBackward(step.kernel, dactivated, io.saved[pre_], io.carried[dpre_]);
    } else {
      GeluBackward(step.kernel, Gelu(), dactivated, io.saved[pre_], io.carried[dpre_]);
    }
    LinearBackwardInput(step, up_, io, io.carried[dpre_], io.carried[norm_.dnormed]);
    WriteDx(step, io);
  }

  void BackwardWeight(const StepContext& step, const SegmentIo& io) const override {
    RequireBackward(Pass::backward_weight, io);
    Tensor activated = Scratch(spec().name, io.scratch).Take(compute(), ActivatedShape());
    Activate(step, io, activated);
    LinearBackwardWeight(step, down_, io, BranchDy(step, io), activated);
    LinearBackwardWeight(step, up_, io, io.carried[dpre_], io.saved[norm_.normed]);
    NormBackwardWeight(step, model(), norm_, io, Rows(io.x));
  }

 protected:
  void WriteBranchSaved(const StepContext& step, const SegmentIo& io) const override {
    LinearForward(step, up_, io, io.saved[norm_.normed], io.saved[pre_]);
  }

 private:
  /// The activation is computed again rather than saved: it costs no matrix product.
  void Activate(const StepContext& step, const SegmentIo& io, Tensor activated) const {
    if (model().activation == Activation::swiglu) {
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
