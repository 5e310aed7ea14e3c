#include "runtime/segments/norm.h"

#include "kernels/layer_norm.h"
#include "kernels/rms_norm.h"

namespace ds {
namespace {

Tensor At(const std::vector<Tensor>& tensors, int index) { return index < 0 ? Tensor() : tensors[index]; }

}  // namespace

void NormForward(const StepContext& step, const ModelConfig& model, const NormIndices& at, const SegmentIo& io,
                 Tensor x) {
  Tensor weight = At(io.params, at.weight), normed = At(io.saved, at.normed), rstd = At(io.saved, at.rstd);
  if (model.norm == Norm::layer_norm) {
    LayerNormForward(step.kernel, x, weight, At(io.params, at.bias), model.norm_eps, normed, At(io.saved, at.mean),
                     rstd);
  } else {
    RmsNormForward(step.kernel, x, weight, model.norm_eps, normed, rstd);
  }
}

void NormBackwardInput(const StepContext& step, const ModelConfig& model, const NormIndices& at, const SegmentIo& io,
                       Tensor x, Tensor residual, Tensor dx) {
  Tensor dnormed = At(io.carried, at.dnormed), weight = At(io.params, at.weight), rstd = At(io.saved, at.rstd);
  if (model.norm == Norm::layer_norm) {
    LayerNormBackwardInput(step.kernel, dnormed, x, weight, At(io.saved, at.mean), rstd, residual, dx);
  } else {
    RmsNormBackwardInput(step.kernel, dnormed, x, weight, rstd, residual, dx);
  }
}

void NormBackwardWeight(const StepContext& step, const ModelConfig& model, const NormIndices& at, const SegmentIo& io,
                        Tensor x) {
  Tensor dnormed = At(io.carried, at.dnormed), rstd = At(io.saved, at.rstd), dweight = At(io.grads, at.weight);
  if (model.norm == Norm::layer_norm) {
    LayerNormBackwardWeight(step.kernel, dnormed, x, At(io.saved, at.mean), rstd, dweight, At(io.grads, at.bias),
                            io.accumulate);
  } else {
    RmsNormBackwardWeight(step.kernel, dnormed, x, rstd, dweight, io.accumulate);
  }
}

}  // namespace ds
