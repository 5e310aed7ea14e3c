// Promise: a job that does not fit is refused before it starts, with the numbers and with changes that really fit.
#include "runtime/base/error.h"
#include "runtime/plan/executor_memory.h"
#include "runtime/plan/price.h"
#include "test/catch.h"
#include "test/plan/models.h"

namespace ds {
namespace {
using namespace test;

JobSpec Job() {
  JobSpec spec;
  spec.model = TinyGpt(4);
  spec.model.hidden = 256;
  spec.model.ffn = 1024;
  spec.model.max_positions = 128;
  spec.data.sequence_length = 128;
  spec.batch = {64, 16, 2};
  return spec;
}

int64_t Need(const JobSpec& spec, int ranks) {
  return BuildPlan(LayoutOf(spec, ranks), PlanOptionsOf(spec, 0, ranks)).price.peak_bytes[0];
}

std::string Refusal(const JobSpec& spec, int ranks, int64_t available = 0) {
  const ModelLayout layout = LayoutOf(spec, ranks);
  try {
    CheckFits(spec, layout, BuildPlan(layout, PlanOptionsOf(spec, 0, ranks)), available);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

bool Has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_CASE("a plan that fits is accepted, one byte less is refused") {
  JobSpec spec = Job();
  const int64_t need = Need(spec, 2);
  spec.memory.device_limit = need;
  CHECK(Refusal(spec, 2).empty());
  spec.memory.device_limit = need - 1;
  CHECK(Has(Refusal(spec, 2), "memory.device_limit"));
  spec.memory.device_limit.reset();
  CHECK(Refusal(spec, 2, need).empty());
  CHECK(Has(Refusal(spec, 2, need - 1), "the memory that the node has"));
  spec.memory.host_limit = need - 1;
  CHECK(Has(Refusal(spec, 2), "memory.host_limit"));
}

TEST_CASE("the copy that checkpoints are written from is a part of the price, where a job takes one") {
  JobSpec spec = Job();
  spec.training.steps = 100;
  const int64_t need = Need(spec, 2);
  auto snapshot = [&](int64_t every, bool async) {
    spec.checkpoint.every = every;
    spec.checkpoint.async = async;
    return BuildPlan(LayoutOf(spec, 2), PlanOptionsOf(spec, 0, 2)).price.snapshot_bytes;
  };
  for (int64_t every : {-1, 0, 100, 1000}) CHECK(snapshot(every, true) == 0);
  CHECK(snapshot(10, false) == 0);
  int64_t elements = 0;
  const ModelLayout layout = LayoutOf(spec, 2);
  for (const ParamUnit& unit : layout.units) elements += unit.numel;
  for (int stage = 0; stage <= 3; ++stage) {
    spec.zero.stage = stage;
    CHECK(snapshot(10, true) == elements / 2 * 12);
  }
  spec.zero.stage = 0;
  const Plan plan = BuildPlan(layout, PlanOptionsOf(spec, 0, 2));
  CHECK(plan.price.peak_bytes[0] == need);
  CHECK(plan.price.peak_bytes[1] == plan.price.snapshot_bytes);
  CHECK(Has(ToText(layout, plan), "host memory: " + std::to_string(plan.price.snapshot_bytes) + " bytes"));
  spec.memory.host_limit = need + plan.price.snapshot_bytes;
  CHECK(Refusal(spec, 2).empty());
  spec.memory.host_limit = need + plan.price.snapshot_bytes - 1;
  CHECK(Has(Refusal(spec, 2), "copy for checkpoints"));
  CHECK(Has(Refusal(spec, 2), "checkpoint.async: false (needs "));
}

TEST_CASE("the refusal names the numbers and the nearest changes that fit") {
  JobSpec spec = Job();
  spec.memory.device_limit = Need(spec, 2) - 1;
  const std::string text = Refusal(spec, 2);
  INFO(text);
  for (const char* part :
       {"parameters", "optimizer moments", "gradients", "activations", "libraries", "zero_optimization.stage: 1 (needs",
        "training.recompute: attention (needs", "train_micro_batch_size_per_gpu: 8 (needs"})
    CHECK(Has(text, part));
}

TEST_CASE("a GPU's plan is refused by the GPU's memory, with what libraries, kernels and executors take") {
  const JobSpec spec = Job();
  const ModelLayout layout = LayoutOf(spec, 2);
  Machine machine = DefaultMachine(DeviceKind::cuda);
  machine.library_bytes = 123 << 20;
  const Plan plan = BuildPlan(layout, PlanOptionsOf(spec, 0, 2, DeviceKind::cuda), machine);
  const Price& price = plan.price;
  const int64_t need = price.peak_bytes[0];
  REQUIRE(price.executor_bytes == kExecutors * ExecutorBytes(layout, plan.options));
  CHECK(need == price.resident_bytes[0] + price.arena_bytes[0] + price.workspace_bytes + price.executor_bytes +
                    machine.LibraryBytes(plan.options));
  CHECK(Has(ToText(layout, plan), std::to_string(price.executor_bytes) + " executors + " +
                                      std::to_string(machine.LibraryBytes(plan.options)) + " libraries = "));
  CheckFits(spec, layout, plan, need, machine);
  std::string text;
  try {
    CheckFits(spec, layout, plan, need - 1, machine);
  } catch (const UsageError& e) {
    text = e.what();
  }
  INFO(text);
  for (const std::string& part :
       {"needs " + FormatBytes(need) + " and the free memory of its GPU is", std::string("samples and sums"),
        std::string("kernels' workspace"), "libraries            " + FormatBytes(machine.LibraryBytes(plan.options))})
    CHECK(Has(text, part));
}

TEST_CASE("the tiers of a job that offloads have a limit each") {
  JobSpec spec = Job();
  spec.zero.stage = 2;
  const int64_t all = Need(spec, 2);
  spec.zero.offload_optimizer = OffloadTarget::cpu;
  const Price price = BuildPlan(LayoutOf(spec, 2), PlanOptionsOf(spec, 0, 2)).price;
  REQUIRE(price.peak_bytes[0] < all);
  REQUIRE(price.peak_bytes[1] > 0);
  spec.memory.device_limit = price.peak_bytes[0];
  spec.memory.host_limit = price.peak_bytes[1];
  CHECK(Refusal(spec, 2).empty());
  CHECK(Refusal(spec, 2, price.peak_bytes[0] + price.peak_bytes[1]).empty());
  CHECK(Has(Refusal(spec, 2, price.peak_bytes[0] + price.peak_bytes[1] - 1), "the memory that the node has"));
  spec.memory.device_limit = price.peak_bytes[0] - 1;
  CHECK(Has(Refusal(spec, 2), "memory.device_limit"));
  spec.memory.device_limit.reset();
  spec.memory.host_limit = price.peak_bytes[1] - 1;
  const std::string text = Refusal(spec, 2);
  INFO(text);
  CHECK(Has(text, "memory.host_limit"));
  CHECK(Has(text, "state that is kept there " + FormatBytes(price.resident_bytes[1])));
  CHECK(Has(text, "offload to nvme"));
}

TEST_CASE("a GPU that is too small for the optimizer is told that the host could keep it") {
  JobSpec spec = Job();
  const ModelLayout layout = LayoutOf(spec, 1);
  const Plan plan = BuildPlan(layout, PlanOptionsOf(spec, 0, 1, DeviceKind::cuda));
  std::string text;
  try {
    CheckFits(spec, layout, plan, plan.price.peak_bytes[0] - 1);
  } catch (const UsageError& e) {
    text = e.what();
  }
  INFO(text);
  CHECK(Has(text, "offload_optimizer.device: cpu with stage: 1 (needs "));
}

TEST_CASE("suggested changes fit, and changes that do not are not suggested") {
  JobSpec smaller = Job();
  smaller.batch = {64, 2, 16};
  JobSpec spec = Job();
  spec.memory.device_limit = Need(smaller, 2);
  const std::string text = Refusal(spec, 2);
  INFO(text);
  CHECK(Has(text, "train_micro_batch_size_per_gpu: 2 (needs"));
  CHECK(!Has(text, "zero_optimization.stage"));
}

TEST_CASE("recomputation is suggested in the order of what it costs, and only where it keeps less") {
  const char* const name = "training.recompute: ";
  for (Activation kind : {Activation::gelu_tanh, Activation::swiglu}) {
    JobSpec spec = Job();
    spec.model.activation = kind;
    auto need = [&](RecomputeMode mode) {
      JobSpec changed = spec;
      changed.training.recompute = mode;
      return Need(changed, 2);
    };
    auto suggested = [&](RecomputeMode now, int64_t limit) {
      JobSpec changed = spec;
      changed.training.recompute = now;
      changed.memory.device_limit = limit;
      const std::string text = Refusal(changed, 2);
      INFO(text);
      const size_t at = text.find(std::string("\n  ") + name);
      if (at == std::string::npos) return std::string();
      CHECK(text.find(std::string("\n  ") + name, at + 1) == std::string::npos);
      const size_t begin = at + 3 + std::string(name).size();
      return text.substr(begin, text.find(' ', begin) - begin);
    };
    const bool swiglu = kind == Activation::swiglu;
    CAPTURE(swiglu);
    using enum RecomputeMode;
    CHECK((need(activation) < need(none)) == swiglu);
    REQUIRE(need(attention) < need(activation));
    REQUIRE(need(full) < need(attention));
    CHECK(suggested(none, need(none) - 1) == (swiglu ? "activation" : "attention"));
    CHECK(suggested(none, need(activation) - 1) == "attention");
    CHECK(suggested(none, need(attention) - 1) == "full");
    CHECK(suggested(activation, need(activation) - 1) == "attention");
    CHECK(suggested(attention, need(attention) - 1) == "full");
    CHECK(suggested(full, need(full) - 1).empty());
  }
}

TEST_CASE("what fits nowhere says so") {
  JobSpec spec = Job();
  spec.memory.device_limit = 1 << 20;
  CHECK(Has(Refusal(spec, 2), "use more ranks, a smaller model or a shorter sequence"));
}

TEST_CASE("the job's settings reach the plan") {
  JobSpec spec = Job();
  spec.zero.stage = 3;
  spec.zero.max_live_parameters = 7;
  spec.training.recompute = RecomputeMode::full;
  spec.precision = Precision::bf16;
  spec.optimizer.kind = OptimizerKind::sgd;
  const PlanOptions o = PlanOptionsOf(spec, 1, 4);
  CHECK(o.rank == 1);
  CHECK(o.ranks == 4);
  CHECK(o.stage == 3);
  CHECK(o.micro_batches == 2);
  CHECK(o.max_live_parameters == 7);
  CHECK(o.recompute == RecomputeMode::full);
  CHECK(o.compute == DType::bf16);
  CHECK(o.moments == 0);
  spec.optimizer.momentum = 0.9;
  CHECK(PlanOptionsOf(spec, 0, 1).moments == 1);
}

}  // namespace
}  // namespace ds
