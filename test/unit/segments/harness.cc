#include "test/unit/segments/harness.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <stdexcept>

namespace ds::test {
namespace {

constexpr size_t kGuard = 64;
constexpr unsigned char kGuardByte = 0xA5;

SegmentSpec FindSpec(const ModelConfig& model, SegmentKind kind, DType compute, MicroBatchShape shape,
                     bool reset_attention, RecomputeMode recompute, bool fp8) {
  std::vector<SegmentSpec> found;
  for (SegmentSpec& s : BuildSegments(model, compute, shape, reset_attention, recompute, fp8))
    if (s.kind == kind) found.push_back(std::move(s));
  if (found.empty()) throw std::logic_error("the model has no such segment");
  return found.back();  // of the last layer: its index is not 0
}

double RoundTo(DType grain, double value) {
  Buffer one(grain, Shape{1});
  one.Set(0, value);
  return one.Get(0);
}

void FillNoise(const Buffer& b, DType grain, uint64_t seed, double centre, double scale) {
  for (int64_t i = 0; i < b.tensor().numel(); ++i)
    WriteElement(b.tensor(), i, RoundTo(grain, centre + scale * Noise(seed, i)));
}

std::vector<Buffer> Allocate(const std::vector<TensorSpec>& specs) {
  std::vector<Buffer> buffers;
  for (const TensorSpec& s : specs) buffers.emplace_back(s.dtype, s.shape);
  return buffers;
}

std::vector<Tensor> TensorsOf(const std::vector<Buffer>& buffers) {
  std::vector<Tensor> tensors;
  for (const Buffer& b : buffers) tensors.push_back(b.tensor());
  return tensors;
}

}  // namespace

double ReadElement(const Tensor& t, int64_t i) {
  switch (t.dtype) {
    case DType::f64:
      return t.as<double>()[i];
    case DType::f32:
      return t.as<float>()[i];
    case DType::bf16:
      return static_cast<float>(t.as<bf16>()[i]);
    case DType::f16:
      return static_cast<float>(t.as<f16>()[i]);
    case DType::i32:
      return t.as<int32_t>()[i];
    default:
      throw std::logic_error("ReadElement of this dtype");
  }
}

void WriteElement(const Tensor& t, int64_t i, double value) {
  switch (t.dtype) {
    case DType::f64:
      t.as<double>()[i] = value;
      return;
    case DType::f32:
      t.as<float>()[i] = static_cast<float>(value);
      return;
    case DType::bf16:
      t.as<bf16>()[i] = bf16(static_cast<float>(value));
      return;
    case DType::f16:
      t.as<f16>()[i] = f16(static_cast<float>(value));
      return;
    case DType::i32:
      t.as<int32_t>()[i] = static_cast<int32_t>(value);
      return;
    default:
      throw std::logic_error("WriteElement of this dtype");
  }
}

double Noise(uint64_t seed, int64_t i) {  // splitmix64
  uint64_t z = (seed + 1) * 0xD1B54A32D192ED03u + (static_cast<uint64_t>(i) + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-52 - 1.0;
}

Buffer::Buffer(DType dtype, Shape shape)
    : memory_(2 * kGuard + static_cast<size_t>(shape.numel()) * SizeOf(dtype), kGuardByte),
      tensor_(memory_.data() + kGuard, dtype, shape) {
  Poison();
}

void Buffer::Poison() { std::memset(tensor_.data, 0xFF, static_cast<size_t>(tensor_.bytes())); }

bool Buffer::GuardsIntact() const {
  auto is_guard = [](unsigned char c) { return c == kGuardByte; };
  return std::all_of(memory_.begin(), memory_.begin() + kGuard, is_guard) &&
         std::all_of(memory_.end() - kGuard, memory_.end(), is_guard);
}

double Buffer::Get(int64_t i) const { return ReadElement(tensor_, i); }
void Buffer::Set(int64_t i, double value) { WriteElement(tensor_, i, value); }

std::vector<double> Buffer::Values() const {
  std::vector<double> values;
  for (int64_t i = 0; i < tensor_.numel(); ++i) values.push_back(Get(i));
  return values;
}

std::vector<unsigned char> Buffer::Bytes() const { return {memory_.begin() + kGuard, memory_.end() - kGuard}; }

std::vector<std::string> SmallModelNames() {
  return {"gpt2", "gpt2-exact-gelu", "gpt2-no-bias", "qkv-bias-only", "llama", "llama-mqa", "rope-layer-norm"};
}

ModelConfig SmallModel(const std::string& name, double dropout) {
  ModelConfig m;
  m.layers = 2, m.hidden = 16, m.heads = 4, m.kv_heads = 4, m.ffn = 12, m.vocabulary = 11, m.max_positions = 7;
  m.dropout = dropout;
  if (name == "gpt2") return m;
  if (name == "gpt2-exact-gelu") {
    m.activation = Activation::gelu;
    return m;
  }
  m.bias = m.qkv_bias = false;
  if (name == "gpt2-no-bias") return m;
  m.position = PositionKind::rope;
  m.rope_theta = 100;  // so that at a few positions every frequency turns
  if (name == "rope-layer-norm") {
    m.kv_heads = 2;
    return m;
  }
  m.norm = Norm::rms_norm, m.norm_eps = 1e-6;
  m.activation = Activation::swiglu;
  m.tied_head = false;
  m.kv_heads = 2;
  if (name == "llama") return m;
  if (name == "llama-mqa") {
    m.kv_heads = 1;
    return m;
  }
  if (name == "qkv-bias-only") {
    m.qkv_bias = true;
    m.tied_head = true;
    return m;
  }
  throw std::logic_error("no small model " + name);
}

Harness::Harness(const ModelConfig& m, SegmentKind kind, DType compute, MicroBatchShape shape, DType grain,
                 bool reset_attention, RecomputeMode recompute, bool fp8)
    : model(m),
      options{m, compute, shape, {}, nullptr},
      spec(FindSpec(m, kind, compute, shape, reset_attention, recompute, fp8)),
      segment(MakeSegment(spec, options)),
      tokens(DType::i32, {shape.samples, shape.tokens}),
      targets(DType::i32, {shape.samples, shape.tokens}),
      first_key(DType::i32, {shape.samples, shape.tokens}),
      x(compute, {shape.samples, shape.tokens, m.hidden}),
      y(compute, {shape.samples, shape.tokens, m.hidden}),
      dy(compute, {shape.samples, shape.tokens, m.hidden}),
      dx(compute, {shape.samples, shape.tokens, m.hidden}),
      scratch(DType::u8, {std::max({spec.forward_scratch, spec.backward_input_scratch, spec.backward_weight_scratch})}),
      saved(Allocate(spec.saved)),
      carried(Allocate(spec.carried)) {
  step.kernel.threads = 1;
  step.seed = 77, step.step = 3, step.first_sample = 4;
  step.loss_scale = 8, step.global_tokens = 40;
  const DType wide = compute == DType::f64 ? DType::f64 : DType::f32;
  auto add_param = [&](const std::string& name, Shape param_shape, int64_t real_rows) {
    param_names.push_back(name);
    grads.emplace_back(wide, param_shape);
    const Buffer& p = params.emplace_back(compute, param_shape);
    bool is_norm_weight = name.ends_with("norm.weight");
    FillNoise(p, grain, params.size(), is_norm_weight ? 1 : 0, is_norm_weight ? 0.3 : 0.5);
    int64_t width = param_shape.numel() / param_shape[0];
    for (int64_t i = real_rows * width; real_rows > 0 && i < param_shape.numel(); ++i) WriteElement(p.tensor(), i, 0);
  };
  for (const ParamSpec& p : spec.params) add_param(p.name, p.shape, p.real_rows);
  if (spec.kind == SegmentKind::head && spec.tied)
    add_param("embedding.tokens.weight", {m.padded_vocabulary(), m.hidden}, m.vocabulary);
  FillNoise(x, grain, 1001, 0.1, 1.5);
  FillNoise(dy, grain, 1002, 0, 1);
  for (int64_t i = 0; i < tokens.tensor().numel(); ++i) {
    tokens.Set(i, static_cast<double>((i * 7 + i * i) % m.vocabulary));
    targets.Set(i, i % 4 == 3 ? -1 : static_cast<double>((i * 5 + 2) % m.vocabulary));  // every fourth is ignored
    const int64_t t = i % shape.tokens;  // documents begin with a sample and where (i % 3) is 2
    first_key.Set(i, t == 0 ? 0 : i % 3 == 2 ? static_cast<double>(t) : first_key.Get(i - 1));
  }
}

Tensor Harness::ScratchOf(int64_t bytes) const {
  return bytes == 0 ? Tensor() : Tensor(scratch.tensor().data, DType::u8, {bytes});
}

void Harness::Forward() {
  SegmentIo io;
  if (spec.kind == SegmentKind::embedding) io.tokens = tokens.tensor();
  if (spec.reset_attention) io.first_key = first_key.tensor();
  if (spec.kind != SegmentKind::embedding) io.x = x.tensor();
  if (spec.kind == SegmentKind::head) io.targets = targets.tensor(), io.loss_sum = &loss_sum;
  if (spec.kind != SegmentKind::head) io.y = y.tensor();
  io.params = TensorsOf(params), io.saved = TensorsOf(saved), io.scratch = ScratchOf(spec.forward_scratch);
  segment->Forward(step, io);
}

void Harness::Recompute() {
  SegmentIo io;
  if (spec.reset_attention) io.first_key = first_key.tensor();
  if (spec.kind != SegmentKind::embedding) io.x = x.tensor();
  if (spec.kind == SegmentKind::head) io.targets = targets.tensor(), io.scratch = ScratchOf(spec.forward_scratch);
  io.params = TensorsOf(params), io.saved = TensorsOf(saved);
  segment->Recompute(step, io);
}

void Harness::BackwardInput() {
  SegmentIo io;
  if (spec.reset_attention) io.first_key = first_key.tensor();
  if (spec.kind != SegmentKind::embedding) io.x = x.tensor(), io.dx = dx.tensor();
  if (spec.kind != SegmentKind::head) io.dy = dy.tensor();
  io.params = TensorsOf(params), io.saved = TensorsOf(saved), io.carried = TensorsOf(carried);
  io.scratch = ScratchOf(spec.backward_input_scratch);
  segment->BackwardInput(step, io);
}

void Harness::BackwardWeight(bool accumulate) {
  SegmentIo io;
  if (spec.kind == SegmentKind::embedding) io.tokens = tokens.tensor();
  if (spec.kind != SegmentKind::embedding) io.x = x.tensor();
  if (spec.kind != SegmentKind::head) io.dy = dy.tensor();
  io.grads = TensorsOf(grads), io.saved = TensorsOf(saved), io.carried = TensorsOf(carried);
  io.scratch = ScratchOf(spec.backward_weight_scratch), io.accumulate = accumulate;
  segment->BackwardWeight(step, io);
}

void Harness::Poison() {
  for (Buffer* b : {&y, &dx, &scratch}) b->Poison();
  for (auto* group : {&grads, &saved, &carried})
    for (Buffer& b : *group) b.Poison();
  loss_sum = std::numeric_limits<double>::quiet_NaN();
}

bool Harness::GuardsIntact() const {
  for (const Buffer* b : {&tokens, &targets, &x, &y, &dy, &dx, &scratch})
    if (!b->GuardsIntact()) return false;
  for (auto* group : {&params, &grads, &saved, &carried})
    for (const Buffer& b : *group)
      if (!b.GuardsIntact()) return false;
  return true;
}

double Harness::Objective() {
  Forward();
  if (spec.kind == SegmentKind::head) return step.loss_scale / static_cast<double>(step.global_tokens) * loss_sum;
  double sum = 0;
  for (int64_t i = 0; i < y.tensor().numel(); ++i) sum += y.Get(i) * dy.Get(i);
  return sum;
}

std::vector<std::pair<std::string, const Buffer*>> Harness::Outputs() const {
  std::vector<std::pair<std::string, const Buffer*>> all;
  if (spec.kind != SegmentKind::head) all.emplace_back("y", &y);
  if (spec.kind != SegmentKind::embedding) all.emplace_back("dx", &dx);
  for (size_t i = 0; i < saved.size(); ++i) all.emplace_back("saved " + spec.saved[i].name, &saved[i]);
  for (size_t i = 0; i < carried.size(); ++i) all.emplace_back("carried " + spec.carried[i].name, &carried[i]);
  for (size_t i = 0; i < grads.size(); ++i) all.emplace_back("gradient of " + param_names[i], &grads[i]);
  return all;
}

}  // namespace ds::test
