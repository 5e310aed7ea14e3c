#include "runtime/bench/work.h"

#include <algorithm>
#include <set>

#include "kernels/fp8_linear.h"
#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/job/presets.h"
#include "runtime/plan/planner.h"
#include "runtime/plan/products.h"

namespace ds {
namespace {

/// Collects products, each key once.
class Products {
 public:
  Products(DType compute, int64_t rows, bool fp8) : compute_(compute), rows_(rows), fp8_(fp8) {}

  void Add(const std::string& what, const MatMulKey& key) {
    if (known_.insert(key).second) list.push_back({what, key});
  }
  /// The three passes of y = x W^T (+ bias) over `rows` rows. `forward_rows`: computed at a time in the forward.
  void AddLinear(const std::string& name, int64_t in, int64_t out, bool bias, int64_t forward_rows, DType forward_c) {
    MatMulKey key;
    key.ab = compute_;
    key.m = forward_rows, key.n = out, key.k = in, key.c = forward_c, key.transpose_b = true;
    key.epilogue = bias ? MatMulEpilogue::bias : MatMulEpilogue::none;
    Add(name + " forward", key);
    key = {};
    key.ab = key.c = compute_;
    key.m = rows_, key.n = in, key.k = out;
    Add(name + " backward-input", key);
    key.m = out, key.n = in, key.k = rows_, key.transpose_a = true;
    key.c = compute_ == DType::f64 ? DType::f64 : DType::f32;
    Add(name + " backward-weight", key);
  }

  /// Of a block: in 8 bits where the job and the shape say so.
  void AddInBlock(const std::string& name, int64_t in, int64_t out, bool bias) {
    if (!fp8_ || !Fp8Multiplies(rows_, in, out)) return AddLinear(name, in, out, bias, rows_, compute_);
    const MatMulEpilogue epilogue = bias ? MatMulEpilogue::bias : MatMulEpilogue::none;
    Add(name + " forward", {rows_, out, in, DType::f8_e4m3, compute_, false, true, false, epilogue});
    Add(name + " backward-input", {rows_, in, out, DType::f8_e5m2, compute_, false, true});
    Add(name + " backward-weight", {out, in, rows_, DType::f8_e5m2, DType::f32, false, true});
  }

  std::vector<BenchProduct> list;

 private:
  const DType compute_;
  const int64_t rows_;
  const bool fp8_;
  std::set<MatMulKey> known_;
};

DType ComputeType(Precision precision) {
  switch (precision) {
    case Precision::bf16:
      return DType::bf16;
    case Precision::fp16:
      return DType::f16;
    default:
      return DType::f32;
  }
}

const char* Fused(MatMulEpilogue epilogue) {
  switch (epilogue) {
    case MatMulEpilogue::none:
      break;
    case MatMulEpilogue::bias:
      return ", bias";
    case MatMulEpilogue::gelu:
      return ", gelu";
    case MatMulEpilogue::bias_gelu:
      return ", bias, gelu";
    case MatMulEpilogue::gelu_backward:
      return ", gelu backward";
  }
  return "";
}

MatMulKey Square(int64_t n, DType dtype) {
  MatMulKey key;
  key.m = key.n = key.k = n;
  key.ab = key.c = dtype;
  return key;
}

BenchWork WorkOfModel(const std::string& name, const ModelConfig& model, DType compute, MicroBatchShape shape,
                      DeviceKind device, bool fp8 = false) {
  BenchWork work;
  work.title = name + ", " + std::to_string(shape.samples) + " x " + std::to_string(shape.tokens) + " tokens, " +
               NameOf(compute) + (fp8 ? ", 8-bit products" : "");
  work.model = model, work.compute = compute, work.shape = shape, work.fp8 = fp8;
  work.products = ProductsOf(model, compute, shape, device, fp8);
  work.attention.push_back({compute, {shape.samples, shape.tokens, model.heads, model.kv_heads, model.head_size()}});
  return work;
}

}  // namespace

std::vector<BenchProduct> ProductsOf(const ModelConfig& model, DType compute, MicroBatchShape shape, DeviceKind device,
                                     bool fp8) {
  const int64_t rows = shape.samples * shape.tokens, hidden = model.hidden;
  const int64_t queries = model.heads * model.head_size();
  const int64_t qkv = (model.heads + 2 * model.kv_heads) * model.head_size();
  const bool swiglu = model.activation == Activation::swiglu;
  Products products(compute, rows, fp8 && device == DeviceKind::cuda);
  products.AddInBlock("qkv", hidden, qkv, model.qkv_bias);
  products.AddInBlock("proj", queries, hidden, model.bias);
  products.AddInBlock(swiglu ? "gate_up" : "up", hidden, swiglu ? 2 * model.ffn : model.ffn, model.bias);
  products.AddInBlock("down", model.ffn, hidden, model.bias);
  // The CPU's head computes 16-bit logits in fp32, a block of rows at a time (segments/head_segment.cc).
  const bool blocks = device == DeviceKind::cpu && (compute == DType::bf16 || compute == DType::f16);
  products.AddLinear("head", hidden, model.padded_vocabulary(), false, blocks ? std::min(rows, kHeadRows) : rows,
                     blocks ? DType::f32 : compute);
  return std::move(products.list);
}

void AddPlan(BenchWork& work, const JobSpec& spec, int workers) {
  std::set<MatMulKey> known;
  for (const BenchProduct& product : work.products) known.insert(product.key);
  const ModelLayout layout = LayoutOf(spec, workers);
  for (const MatMulKey& key :
       MatMulKeysOf(layout, BuildPlan(layout, PlanOptionsOf(spec, 0, workers, DeviceKind::cuda))))
    if (known.insert(key).second)
      work.products.push_back(
          {std::string("of the plan") + Fused(key.epilogue) + (key.accumulate ? ", adds" : ""), key});
}

JobSpec SpecOfPreset(const std::string& name, const BenchWork& work) {
  const char* const bf16 = work.compute == DType::bf16 ? "true" : "false";
  const std::string text =
      "model: {preset: " + name + "}\ndata: {train: /dev/null, sequence_length: " + std::to_string(work.shape.tokens) +
      "}\ntraining: {steps: 1}\ndeepspeed:\n  train_batch_size: " + std::to_string(work.shape.samples) +
      "\n  gradient_accumulation_steps: 1\n  bf16: {enabled: " + bf16 + "}\n";
  return ParseJobSpec(text, name, "/", {}, 1);
}

BenchWork WorkOf(const JobSpec& spec, DeviceKind device) {
  return WorkOfModel(spec.preset.empty() ? spec.name : spec.preset, spec.model, ComputeType(spec.precision),
                     {spec.batch.micro_batch_size, spec.data.sequence_length}, device, spec.training.fp8);
}

BenchWork WorkOfPreset(const std::string& name, DeviceKind device) {
  const Preset* preset = FindPreset(name);
  if (!preset) {
    std::vector<std::string> names;
    for (const Preset& known : Presets()) names.push_back(known.name);
    throw UsageError("--model " + Shown(name) + ": no such preset; nearest: " + Nearest(name, names) + "; there are " +
                     Join(names, ", "));
  }
  ModelConfig model = preset->model;
  if (model.kv_heads == 0) model.kv_heads = model.heads;
  if (model.ffn == 0) model.ffn = 4 * model.hidden;
  const bool gpu = device == DeviceKind::cuda;
  const MicroBatchShape shape{gpu ? 4 : 1, std::min<int64_t>(model.max_positions, gpu ? 1024 : 256)};
  return WorkOfModel(name, model, gpu ? DType::bf16 : DType::f32, shape, device);
}

BenchWork DefaultWork(DeviceKind device) {
  BenchWork work = WorkOfPreset(kDefaultPreset, device);
  work.title = "square products, and " + work.title;
  const bool gpu = device == DeviceKind::cuda;
  using Sizes = std::vector<std::pair<int64_t, DType>>;
  const Sizes squares = gpu ? Sizes{{8192, DType::bf16}, {4096, DType::bf16}, {4096, DType::f32}, {4096, DType::f64}}
                            : Sizes{{1024, DType::f32}, {1024, DType::bf16}, {512, DType::f64}};
  std::vector<BenchProduct> products;
  for (const auto& [n, dtype] : squares) products.push_back({"square", Square(n, dtype)});
  for (BenchProduct& product : work.products) products.push_back(std::move(product));
  work.products = std::move(products);
  if (gpu) {
    work.attention.push_back({DType::bf16, {1, 4096, 12, 12, 64}});
    work.attention.push_back({DType::bf16, {1, 4096, 32, 8, 128}});
    work.attention.push_back({DType::f32, {1, 1024, 12, 12, 64}});
  } else {
    work.attention.push_back({DType::f32, {1, 1024, 4, 4, 64}});
  }
  return work;
}

std::string ShapeText(const MatMulKey& key) {
  return std::to_string(key.m) + " x " + std::to_string(key.n) + " x " + std::to_string(key.k) + " " + NameOf(key.ab);
}

double Flops(const MatMulKey& key) {
  return 2.0 * static_cast<double>(key.m) * static_cast<double>(key.n) * static_cast<double>(key.k);
}

}  // namespace ds
