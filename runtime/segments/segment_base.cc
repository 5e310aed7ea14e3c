#include "runtime/segments/segment_base.h"

#include "kernels/dropout.h"
#include "kernels/fp8_linear.h"
#include "runtime/base/error.h"

namespace ds {
namespace {

constexpr int64_t kAlignment = 64;  // of the tensors in a scratch, as LayOut places them

const char* NameOf(Pass pass) {
  switch (pass) {
    case Pass::forward:
      return "Forward";
    case Pass::recompute:
      return "Recompute";
    case Pass::backward_input:
      return "BackwardInput";
    case Pass::backward_weight:
      return "BackwardWeight";
  }
  return "?";
}

std::string Describe(DType dtype, const Shape& shape) { return std::string(ds::NameOf(dtype)) + " " + shape.str(); }

/// "layers.3.mlp.up.weight" is named "up.weight"; "layers.3.mlp.gate_up.weight" is not.
bool IsNamed(const std::string& name, const std::string& suffix) {
  return name == suffix || name.ends_with("." + suffix);
}

}  // namespace

RandomStream DropoutStream(const StepContext& step, int64_t layer, DropoutPlace place) {
  constexpr uint64_t kDropoutSites = uint64_t{1} << 63;
  uint64_t site = kDropoutSites | static_cast<uint64_t>(step.step) << 24 | static_cast<uint64_t>(layer + 1) << 4 |
                  static_cast<uint64_t>(place);
  return {step.seed, site};
}

Tensor Scratch::Take(DType dtype, Shape shape) {
  used_ = (used_ + kAlignment - 1) / kAlignment * kAlignment;
  int64_t bytes = shape.numel() * static_cast<int64_t>(SizeOf(dtype));
  if (!bytes_ || used_ + bytes > bytes_.bytes())
    throw RuntimeError(segment_ + ": the scratch holds " + std::to_string(bytes_ ? bytes_.bytes() : 0) +
                       " bytes, the pass needs at least " + std::to_string(used_ + bytes));
  Tensor t(static_cast<char*>(bytes_.data) + used_, dtype, shape, bytes_.device);
  used_ += bytes;
  return t;
}

SegmentBase::SegmentBase(const SegmentSpec& spec, const SegmentOptions& options) : spec_(spec), options_(options) {}

int SegmentBase::ParamIndex(const std::string& suffix) const {
  for (size_t i = 0; i < spec_.params.size(); ++i)
    if (IsNamed(spec_.params[i].name, suffix)) return static_cast<int>(i);
  return -1;
}

int SegmentBase::RequiredParam(const std::string& suffix) const {
  int index = ParamIndex(suffix);
  if (index < 0) throw RuntimeError(spec_.name + ": its SegmentSpec has no parameter '" + suffix + "'");
  return index;
}

int SegmentBase::TensorIndex(const std::vector<TensorSpec>& tensors, const std::string& name) {
  for (size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i].name == name) return static_cast<int>(i);
  return -1;
}

int SegmentBase::RequiredTensor(const std::vector<TensorSpec>& tensors, const std::string& name) const {
  int index = TensorIndex(tensors, name);
  if (index < 0) throw RuntimeError(spec_.name + ": its SegmentSpec has no tensor '" + name + "'");
  return index;
}

NormIndices SegmentBase::FindNorm() const {
  return {RequiredParam("norm.weight"),          ParamIndex("norm.bias"),
          RequiredTensor(spec_.saved, "normed"), TensorIndex(spec_.saved, "mean"),
          RequiredTensor(spec_.saved, "rstd"),   RequiredTensor(spec_.carried, "dnormed")};
}

LinearIndices SegmentBase::FindLinear(const std::string& name) const {
  const int weight = RequiredParam(name + ".weight");
  const Shape shape = spec_.params[static_cast<size_t>(weight)].shape;  // [out, in]
  return {weight, ParamIndex(name + ".bias"), spec_.fp8 && Fp8Multiplies(rows(), shape[1], shape[0])};
}

void SegmentBase::Require(Pass pass, const std::string& what, const Tensor& t, DType dtype, Shape shape) const {
  if (t && t.dtype == dtype && t.shape == shape && t.device == options_.device) return;
  std::string got = !t ? "absent" : Describe(t.dtype, t.shape);
  if (t && t.device != options_.device) got += t.device.kind == DeviceKind::cpu ? " in host memory" : " on a GPU";
  throw RuntimeError(spec_.name + ": " + NameOf(pass) + ": " + what + " is " + got + ", expected " +
                     Describe(dtype, shape) +
                     (options_.device.kind == DeviceKind::cpu ? " in host memory" : " on the GPU"));
}

void SegmentBase::RequireAll(Pass pass, const std::string& what, const std::vector<Tensor>& tensors,
                             const std::vector<TensorSpec>& specs) const {
  if (tensors.size() != specs.size())
    throw RuntimeError(spec_.name + ": " + NameOf(pass) + ": " + std::to_string(tensors.size()) + " " + what +
                       " tensors, expected " + std::to_string(specs.size()));
  for (size_t i = 0; i < specs.size(); ++i)
    Require(pass, what + " '" + specs[i].name + "'", tensors[i], specs[i].dtype, specs[i].shape);
}

namespace {

/// SegmentSpec's parameters as tensors of one dtype; a tied head's token table last.
std::vector<TensorSpec> ParamTensors(const SegmentSpec& spec, const ModelConfig& model, DType dtype) {
  std::vector<TensorSpec> tensors;
  for (const ParamSpec& p : spec.params) tensors.push_back({p.name, dtype, p.shape});
  if (spec.kind == SegmentKind::head && spec.tied)
    tensors.push_back({"token table", dtype, {model.padded_vocabulary(), model.hidden}});
  return tensors;
}

}  // namespace

void SegmentBase::RequireParams(Pass pass, const SegmentIo& io) const {
  RequireAll(pass, "parameter", io.params, ParamTensors(spec_, model(), compute()));
}

void SegmentBase::RequireGrads(const SegmentIo& io) const {
  RequireAll(Pass::backward_weight, "gradient", io.grads, ParamTensors(spec_, model(), wide()));
}

void SegmentBase::ApplyDropout(const StepContext& step, DropoutPlace place, Tensor x, Tensor residual, Tensor y) const {
  uint64_t first = static_cast<uint64_t>(step.first_sample) * static_cast<uint64_t>(tokens() * hidden());
  Dropout(step.kernel, DropoutStream(step, spec_.layer, place), first, static_cast<float>(model().dropout), Rows(x),
          residual ? Rows(residual) : residual, Rows(y));
}

}  // namespace ds
