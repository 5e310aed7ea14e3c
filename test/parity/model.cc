#include "test/parity/model.h"

#include <algorithm>
#include <stdexcept>

#include "runtime/data/first_keys.h"

namespace ds::test {

double ReadElement(const Tensor& t, int64_t i) { return t.dtype == DType::f64 ? t.as<double>()[i] : t.as<float>()[i]; }

void WriteElement(const Tensor& t, int64_t i, double value) {
  if (t.dtype == DType::f64) {
    t.as<double>()[i] = value;
  } else {
    t.as<float>()[i] = static_cast<float>(value);
  }
}

int64_t Model::Parameter::real_numel() const {
  return spec.real_rows > 0 ? spec.real_rows * (spec.shape.numel() / spec.shape[0]) : spec.shape.numel();
}

Model::Model(const ModelConfig& config, DType compute, MicroBatchShape shape, int32_t end_of_document)
    : options_{config, compute, shape, {}}, end_of_document_(end_of_document) {
  step_.kernel.threads = 2;
  step_.step = 1;
  step_.global_tokens = shape.samples * shape.tokens;
  const Shape activations{shape.samples, shape.tokens, config.hidden};
  int64_t scratch = 0;
  for (SegmentSpec& spec : BuildSegments(config, compute, shape, end_of_document >= 0)) {
    Stage stage;
    stage.segment = MakeSegment(spec, options_);
    for (const ParamSpec& p : spec.params) stage.params.push_back(AddParameter(p));
    if (spec.tied) stage.params.push_back(stages_.front().params.front());  // the token table
    for (size_t p : stage.params) {
      std::vector<Tensor>& gradients = parameters_[p].gradients;
      stage.slots.push_back(gradients.size());
      gradients.push_back(Allocate(compute, parameters_[p].spec.shape));
    }
    for (const TensorSpec& t : spec.saved) stage.saved.push_back(Allocate(t.dtype, t.shape));
    for (const TensorSpec& t : spec.carried) stage.carried.push_back(Allocate(t.dtype, t.shape));
    if (spec.kind != SegmentKind::head) stage.output = Allocate(compute, activations);
    scratch = std::max({scratch, spec.forward_scratch, spec.backward_input_scratch, spec.backward_weight_scratch});
    stage.spec = std::move(spec);
    stages_.push_back(std::move(stage));
  }
  tokens_ = Allocate(DType::i32, {shape.samples, shape.tokens});
  targets_ = Allocate(DType::i32, {shape.samples, shape.tokens});
  if (end_of_document >= 0) first_key_ = Allocate(DType::i32, {shape.samples, shape.tokens});
  scratch_ = Allocate(DType::u8, {scratch});
  dy_ = Allocate(compute, activations);
  dx_ = Allocate(compute, activations);
}

Tensor Model::Allocate(DType dtype, Shape shape) {
  memory_.emplace_back(static_cast<size_t>(shape.numel()) * SizeOf(dtype), 0xFF);  // NaN until written
  return Tensor(memory_.back().data(), dtype, shape);
}

size_t Model::AddParameter(const ParamSpec& spec) {
  parameters_.push_back({spec, Allocate(options_.compute, spec.shape), {}});
  return parameters_.size() - 1;
}

SegmentIo Model::Io(Stage& stage, Tensor x) {
  SegmentIo io;
  io.tokens = tokens_, io.targets = targets_, io.first_key = first_key_;
  io.x = x, io.y = stage.output, io.dy = dy_, io.dx = dx_;
  for (size_t i = 0; i < stage.params.size(); ++i) {
    Parameter& p = parameters_[stage.params[i]];
    io.params.push_back(p.value);
    io.grads.push_back(p.gradients[stage.slots[i]]);
  }
  io.saved = stage.saved, io.carried = stage.carried, io.scratch = scratch_;
  io.loss_sum = &loss_sum_;
  return io;
}

double Model::Forward(const std::vector<double>& tokens) {
  const int64_t samples = options_.shape.samples, length = options_.shape.tokens;
  if (static_cast<int64_t>(tokens.size()) != samples * (length + 1)) throw std::logic_error("a batch of another size");
  for (int64_t b = 0; b < samples; ++b) {
    for (int64_t t = 0; t < length; ++t) {
      tokens_.as<int32_t>()[b * length + t] = static_cast<int32_t>(tokens[b * (length + 1) + t]);
      targets_.as<int32_t>()[b * length + t] = static_cast<int32_t>(tokens[b * (length + 1) + t + 1]);
    }
    if (!first_key_) continue;
    WriteFirstKeys(tokens_.as<int32_t>() + b * length, length, end_of_document_, first_key_.as<int32_t>() + b * length);
  }
  Tensor x;
  for (Stage& stage : stages_) {
    stage.segment->Forward(step_, Io(stage, x));
    x = stage.output;
  }
  return loss_sum_ / static_cast<double>(samples * length);
}

void Model::Backward() {
  for (size_t i = stages_.size(); i-- > 0;) {
    SegmentIo io = Io(stages_[i], i > 0 ? stages_[i - 1].output : Tensor());
    stages_[i].segment->BackwardInput(step_, io);
    stages_[i].segment->BackwardWeight(step_, io);
    std::swap(dy_, dx_);
  }
}

std::vector<double> Model::Logits() const {
  const Stage& head = stages_.back();
  const int64_t rows = options_.shape.samples * options_.shape.tokens, vocabulary = options_.model.vocabulary;
  std::vector<unsigned char> bytes(static_cast<size_t>(rows * vocabulary) * SizeOf(options_.compute));
  Tensor logits(bytes.data(), options_.compute, {rows, vocabulary});
  std::vector<Tensor> params;
  for (size_t p : head.params) params.push_back(parameters_[p].value);
  Tensor x = stages_[stages_.size() - 2].output.View({rows, options_.model.hidden});
  HeadLogits(options_, head.spec, step_, params, x, 0, rows, logits);
  std::vector<double> values;
  for (int64_t i = 0; i < logits.numel(); ++i) values.push_back(ReadElement(logits, i));
  return values;
}

}  // namespace ds::test
