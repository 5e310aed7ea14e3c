// Promise: what ds-bench times is what training computes.
#include "runtime/bench/work.h"

#include <map>
#include <set>

#include "runtime/base/error.h"
#include "runtime/job/presets.h"
#include "runtime/plan/planner.h"
#include "runtime/plan/products.h"
#include "test/catch.h"

namespace ds {
namespace {

/// Operations of the products whose names begin so and end so.
double FlopsOf(const std::vector<BenchProduct>& products, const std::string& layer, const std::string& pass) {
  double flops = 0;
  int found = 0;
  for (const BenchProduct& product : products)
    if (product.what == layer + " " + pass) flops += Flops(product.key), ++found;
  INFO(layer << " " << pass);
  CHECK(found == 1);
  return flops;
}

}  // namespace

TEST_CASE("the products of every preset have the operations that its segments count") {
  for (const Preset& preset : Presets()) {
    INFO(preset.name);
    const BenchWork work = WorkOfPreset(preset.name, DeviceKind::cuda);
    const std::vector<SegmentSpec> segments = BuildSegments(work.model, work.compute, work.shape);
    const SegmentSpec &attention = segments[1], &mlp = segments[2], &head = segments.back();
    const std::string up = work.model.activation == Activation::swiglu ? "gate_up" : "up";
    for (const char* pass : {"forward", "backward-input", "backward-weight"}) {
      INFO(pass);
      // Backward-weight of the attention segment is its two projections and nothing else.
      CHECK(FlopsOf(work.products, "qkv", pass) + FlopsOf(work.products, "proj", pass) ==
            Approx(attention.backward_weight_flops));
      CHECK(FlopsOf(work.products, up, pass) + FlopsOf(work.products, "down", pass) == Approx(mlp.forward_flops));
      CHECK(FlopsOf(work.products, "head", pass) == Approx(head.forward_flops));
    }
  }
}

TEST_CASE("a job with training.fp8 has its 8-bit products on GPUs, in the table's keys; a CPU's are bf16's") {
  const auto job = [](bool fp8, int length) {
    return ParseJobSpec("model: {preset: llama-tiny}\ndata: {train: /dev/null, sequence_length: " +
                            std::to_string(length) + "}\ntraining: {steps: 1, fp8: " + (fp8 ? "true" : "false") +
                            "}\ndeepspeed: {train_batch_size: 4, bf16: {enabled: true}}\n",
                        "job.yaml", "/", {}, 1);
  };
  const BenchWork gpu = WorkOf(job(true, 128), DeviceKind::cuda);
  CHECK(gpu.fp8);
  CHECK(gpu.title.ends_with("bf16, 8-bit products"));
  BenchWork with_plan = gpu;
  AddPlan(with_plan, job(true, 128), 1);
  CHECK(with_plan.products.size() == gpu.products.size());  // the plan has no other: nothing is fused, nothing added
  int eight = 0;
  for (const BenchProduct& product : gpu.products) eight += IsFp8(product.key.ab);
  CHECK(eight == 12);
  CHECK(WorkOf(job(true, 128), DeviceKind::cpu).products.size() ==
        WorkOf(job(false, 128), DeviceKind::cpu).products.size());
  for (const DeviceKind device : {DeviceKind::cpu, DeviceKind::cuda})
    for (const BenchProduct& product : WorkOf(job(device == DeviceKind::cpu, 128), device).products)
      CHECK_FALSE(IsFp8(product.key.ab));
  for (const BenchProduct& product : WorkOf(job(true, 3), DeviceKind::cuda).products)  // 12 rows
    CHECK_FALSE(IsFp8(product.key.ab));
}

TEST_CASE("no product is timed twice, and gradients of weights are fp32") {
  for (const DeviceKind device : {DeviceKind::cpu, DeviceKind::cuda}) {
    const BenchWork work = DefaultWork(device);
    std::map<MatMulKey, int> times;
    for (const BenchProduct& product : work.products) {
      CHECK(++times[product.key] == 1);
      if (product.what.ends_with("backward-weight")) CHECK(product.key.c == DType::f32);
    }
    CHECK(!work.attention.empty());
  }
}

TEST_CASE("the CPU's head computes 16-bit logits in fp32, a block of rows at a time; a GPU's in one product") {
  ModelConfig model = WorkOfPreset("gpt2-tiny", DeviceKind::cpu).model;
  const MicroBatchShape shape{8, 128};
  const auto head = [&](DType compute, DeviceKind device) {
    for (const BenchProduct& product : ProductsOf(model, compute, shape, device))
      if (product.what == "head forward") return product.key;
    FAIL("no head");
    return MatMulKey{};
  };
  CHECK(head(DType::bf16, DeviceKind::cpu).m == kHeadRows);
  CHECK(head(DType::bf16, DeviceKind::cpu).c == DType::f32);
  CHECK(head(DType::f32, DeviceKind::cpu).m == 1024);
  CHECK(head(DType::bf16, DeviceKind::cuda).m == 1024);
  CHECK(head(DType::bf16, DeviceKind::cuda).c == DType::bf16);
}

TEST_CASE("on GPUs every product of the job's plan is timed, once") {
  for (const Preset& preset : Presets()) {
    INFO(preset.name);
    BenchWork work = WorkOfPreset(preset.name, DeviceKind::cuda);
    const JobSpec spec = SpecOfPreset(preset.name, work);
    CHECK(spec.batch.micro_batch_size == work.shape.samples);
    CHECK(WorkOf(spec, DeviceKind::cuda).products.size() == work.products.size());
    AddPlan(work, spec, 1);
    std::set<MatMulKey> timed;
    bool fused = false;
    for (const BenchProduct& product : work.products) {
      CHECK(timed.insert(product.key).second);
      fused |= product.what.find("gelu") != std::string::npos;
    }
    CHECK(fused == (work.model.activation == Activation::gelu_tanh));
    const ModelLayout layout = LayoutOf(spec, 1);
    const Plan plan = BuildPlan(layout, PlanOptionsOf(spec, 0, 1, DeviceKind::cuda));
    for (const MatMulKey& key : MatMulKeysOf(layout, plan)) CHECK(timed.count(key) == 1);
    const size_t all = work.products.size();
    AddPlan(work, spec, 1);
    CHECK(work.products.size() == all);
  }
}

TEST_CASE("a preset that is none is refused with the nearest and all of them") {
  try {
    WorkOfPreset("gpt2-124", DeviceKind::cpu);
    FAIL("nothing was thrown");
  } catch (const UsageError& error) {
    const std::string text = error.what();
    CHECK(text.find("nearest: gpt2-124m") != std::string::npos);
    for (const Preset& preset : Presets()) CHECK(text.find(preset.name) != std::string::npos);
  }
}

TEST_CASE("the work of a job is its model's, in its precision and micro-batch") {
  const JobSpec spec = ParseJobSpec(
      "model: {preset: gpt2-tiny}\ndata: {train: /dev/null, sequence_length: 32}\ntraining: {steps: 1}\n"
      "deepspeed: {train_batch_size: 8, gradient_accumulation_steps: 2, bf16: {enabled: true}}\n",
      "job.yaml", "/", {}, 2);
  const BenchWork work = WorkOf(spec, DeviceKind::cpu);
  CHECK(work.compute == DType::bf16);
  CHECK(work.shape.samples == 2);
  CHECK(work.shape.tokens == 32);
  CHECK(work.products.front().key.m == 64);
}

}  // namespace ds
