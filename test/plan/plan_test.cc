// Promises: bytes a rank keeps and sends follow the stages' formulas exactly; plans of real sizes can be made.
#include "runtime/plan/plan.h"

#include <algorithm>
#include <map>

#include "kernels/workspace.h"
#include "runtime/plan/check.h"
#include "runtime/plan/price.h"
#include "test/catch.h"
#include "test/plan/models.h"

namespace ds {
namespace {
using namespace test;

struct Sizes {
  int64_t all = 0, persistent = 0, tied = 0;  // elements, padded
};

Sizes SizesOf(const ModelLayout& layout) {
  Sizes sizes;
  for (const ParamUnit& unit : layout.units) {
    sizes.all += unit.numel;
    if (unit.persistent) sizes.persistent += unit.numel;
  }
  if (layout.segments.back().tied) sizes.tied = layout.units[0].numel;
  return sizes;
}

std::map<StateKind, int64_t> ResidentBytes(const Plan& plan) {
  std::map<StateKind, int64_t> bytes;
  for (const Buffer& buffer : plan.buffers)
    if (buffer.kind == BufferKind::resident) bytes[buffer.state] += buffer.bytes;
  return bytes;
}

TEST_CASE("resident bytes follow the formulas of each stage") {
  const int stage = GENERATE(0, 1, 2, 3);
  const int n = GENERATE(1, 2, 4);
  const DType compute = GENERATE(DType::f32, DType::bf16);
  const ModelConfig model = GENERATE(TinyGpt(), TinyLlama());
  CAPTURE(stage, n, NameOf(compute));
  const ModelLayout layout = TinyLayout(model, SmallZero(stage), n, compute);
  PlanOptions o;
  o.stage = stage;
  o.ranks = n;
  o.compute = compute;
  o.micro_batches = 3;
  const Plan plan = BuildPlan(layout, o);
  const Sizes p = SizesOf(layout);
  auto bytes = ResidentBytes(plan);

  const int64_t working = compute == DType::f32 ? 4 : 2;
  const int64_t gradients = p.all + p.tied;  // a tied table has two
  const int64_t optimizer = stage == 0 ? p.all : p.all / n;
  CHECK(bytes[StateKind::working] == working * (stage < 3 ? p.all : p.persistent + (p.all - p.persistent) / n));
  CHECK(bytes[StateKind::master] == (compute == DType::f32 ? 0 : 4 * optimizer));
  CHECK(bytes[StateKind::moment1] == 4 * optimizer);
  CHECK(bytes[StateKind::moment2] == 4 * optimizer);
  CHECK(bytes[StateKind::gradient] == 4 * (stage < 2 ? gradients : gradients / n));

  int64_t total = 0;
  for (const auto& [state, b] : bytes) total += b;
  CHECK(plan.price.resident_bytes[0] == total);
  CHECK(plan.price.peak_bytes[0] == total + plan.arena_bytes[0] + Machine{}.library_bytes);
  CHECK(plan.price.peak_bytes[1] == 0);
}

TEST_CASE("an optimizer without moments keeps none") {
  const int moments = GENERATE(0, 1, 2);
  const ModelLayout layout = TinyLayout(TinyGpt(), SmallZero(2), 2);
  PlanOptions o;
  o.stage = o.ranks = 2;
  o.moments = moments;
  auto bytes = ResidentBytes(BuildPlan(layout, o));
  CHECK((bytes[StateKind::moment1] > 0) == (moments > 0));
  CHECK((bytes[StateKind::moment2] > 0) == (moments > 1));
}

TEST_CASE("the bytes that a rank sends follow the formulas of each stage") {
  const int stage = GENERATE(0, 1, 2, 3);
  const bool exact = GENERATE(false, true);
  const int n = 4, m = 3;
  CAPTURE(stage, exact);
  const ModelLayout layout = TinyLayout(TinyGpt(), SmallZero(stage), n);
  PlanOptions o;
  o.stage = stage;
  o.ranks = n;
  o.micro_batches = m;
  o.exact_sharding = exact;
  const Plan plan = BuildPlan(layout, o);
  std::map<ActionKind, int64_t> sent;
  for (const Action& action : plan.actions) sent[action.kind] += action.bytes;

  const Sizes p = SizesOf(layout);
  const int64_t ring = 4 * (n - 1);  // f32, of a shard
  const int64_t gradients = (p.all + p.tied) / n, reductions = stage >= 2 || exact ? m : 1;
  CHECK(sent[ActionKind::reduce] == ring * gradients * (reductions + (stage == 0 ? 1 : 0)));
  // ZeRO-3 within its default budgets gathers every sharded unit once a step.
  const int64_t gathered = stage == 0 ? 0 : stage < 3 ? p.all : p.persistent + (p.all - p.persistent);
  CHECK(sent[ActionKind::gather] == ring * gathered / n);
}

TEST_CASE("exact sharding gives stages 0 and 1 the reductions of stage 2") {
  const int stage = GENERATE(0, 1);
  const ModelLayout layout = TinyLayout(TinyGpt(), SmallZero(stage), 2);
  PlanOptions o;
  o.ranks = 2;
  o.micro_batches = 2;
  auto reductions = [&](int s, bool exact) {
    o.stage = s;
    o.exact_sharding = exact;
    std::vector<std::string> names;
    for (const Action& action : BuildPlan(layout, o).actions)
      if (action.kind == ActionKind::reduce)
        names.push_back(Describe(layout, action) + (action.accumulate ? " accumulates" : ""));
    return names;
  };
  CHECK(reductions(stage, true) == reductions(2, false));
  CHECK(reductions(stage, false).size() * 2 == reductions(2, false).size());
}

TEST_CASE("recomputation keeps the inputs of its segments alone") {
  const ModelLayout layout = TinyLayout(TinyGpt(6), SmallZero(2), 2);
  PlanOptions o;
  o.stage = o.ranks = 2;
  auto arena = [&](RecomputeMode mode) {
    o.recompute = mode;
    return BuildPlan(layout, o).arena_bytes[0];
  };
  const int64_t none = arena(RecomputeMode::none), attention = arena(RecomputeMode::attention),
                full = arena(RecomputeMode::full);
  const int64_t saved_attention = LayOut(layout.segments[1].saved), saved_mlp = LayOut(layout.segments[2].saved);
  CHECK(attention <= none - 5 * saved_attention);
  CHECK(full <= attention - 4 * saved_mlp);
}

/// The plan of one rank with `recompute`, of layers whose MLPs have 32 rows.
Plan PlanWith(const ModelConfig& model, RecomputeMode recompute, DType compute, DeviceKind device = DeviceKind::cpu) {
  PlanOptions o;
  o.recompute = recompute;
  o.compute = compute;
  o.device = device;
  return BuildPlan(TinyLayout(model, SmallZero(0), 1, compute, {2, 16}, recompute), o);
}

/// Bytes of all buffers of one kind.
int64_t BytesOf(const Plan& plan, BufferKind kind) {
  int64_t bytes = 0;
  for (const Buffer& buffer : plan.buffers)
    if (buffer.kind == kind) bytes += buffer.bytes;
  return bytes;
}

/// Bytes of the scratch of an action of the MLP of layer 0; 0: it has none.
int64_t MlpScratch(const Plan& plan, ActionKind kind) {
  for (const Action& action : plan.actions)
    if (action.kind == kind && action.segment == 2)
      if (const Use* use = action.Find(Operand::scratch)) return plan.buffers[static_cast<size_t>(use->buffer)].bytes;
  return 0;
}

TEST_CASE("without recomputation SwiGLU's output is kept and nothing is computed into scratch in its place") {
  const int64_t layers = 6;
  const ModelConfig model = TinyLlama(layers);
  for (DType compute : {DType::f32, DType::bf16})
    for (DeviceKind device : {DeviceKind::cpu, DeviceKind::cuda}) {
      CAPTURE(NameOf(compute), static_cast<int>(device));
      const int64_t activated = 2 * 16 * model.ffn * static_cast<int64_t>(SizeOf(compute));
      const Plan none = PlanWith(model, RecomputeMode::none, compute, device),
                 again = PlanWith(model, RecomputeMode::activation, compute, device);
      CHECK(BytesOf(none, BufferKind::saved) == BytesOf(again, BufferKind::saved) + layers * activated);
      CHECK(none.arena_bytes[0] >= again.arena_bytes[0] + (layers - 1) * activated);
      CHECK(none.actions.size() == again.actions.size());
      for (ActionKind kind : {ActionKind::forward, ActionKind::backward_weight}) CHECK(MlpScratch(none, kind) == 0);
      for (RecomputeMode mode : {RecomputeMode::activation, RecomputeMode::attention, RecomputeMode::full}) {
        CAPTURE(static_cast<int>(mode));
        const Plan plan = PlanWith(model, mode, compute, device);
        CHECK(MlpScratch(plan, ActionKind::forward) == activated);
        CHECK(MlpScratch(plan, ActionKind::backward_weight) == activated);
      }
    }
}

TEST_CASE("GELU's output is kept whatever is recomputed: recompute activation is none by another name") {
  for (Activation activation : {Activation::gelu, Activation::gelu_tanh}) {
    ModelConfig model = TinyGpt();
    model.activation = activation;
    for (DType compute : {DType::f32, DType::bf16}) {
      const ModelLayout layout = TinyLayout(model, SmallZero(0), 1, compute);
      std::string text = ToText(layout, PlanWith(model, RecomputeMode::activation, compute));
      const std::string name = "recompute activation";
      REQUIRE(text.find(name) != std::string::npos);
      text.replace(text.find(name), name.size(), "recompute none");
      CHECK(text == ToText(layout, PlanWith(model, RecomputeMode::none, compute)));
      for (RecomputeMode mode : {RecomputeMode::none, RecomputeMode::attention, RecomputeMode::full}) {
        const Plan plan = PlanWith(model, mode, compute);
        CHECK(MlpScratch(plan, ActionKind::backward_weight) == 0);
        CHECK(MlpScratch(plan, ActionKind::recompute) == 0);
      }
    }
  }
}

TEST_CASE("attention within documents is told in a plan's text, and needs no memory for cuDNN") {
  const MicroBatchShape shape{2, 4096};
  ModelConfig model = TinyLlama();
  model.hidden = 256;  // heads of 64, which cuDNN would be asked for
  PlanOptions options;
  options.device = DeviceKind::cuda;
  options.compute = DType::bf16;
  std::string texts[2];
  int64_t workspace[2];
  for (bool reset : {false, true}) {
    const ModelLayout layout = BuildLayout(BuildSegments(model, DType::bf16, shape, reset), SmallZero(), 1);
    for (const SegmentSpec& segment : layout.segments)
      CHECK(segment.reset_attention == (reset && segment.kind == SegmentKind::attention));
    const Plan plan = BuildPlan(layout, options);
    texts[reset] = ToText(layout, plan), workspace[reset] = plan.price.workspace_bytes;
  }
  const std::string told = ", attention within documents\n";
  CHECK(texts[0].find(told) == std::string::npos);
  CHECK(texts[1].find("recompute none" + told) < texts[1].find("model: "));
  CHECK(workspace[0] > MatMulWorkspaceBytes());
  CHECK(workspace[1] == MatMulWorkspaceBytes());
}

TEST_CASE("a GPU's workspace has room for the sums of squares of all that a rank owns") {
  ModelConfig model = TinyGpt();
  model.hidden = 512, model.ffn = 2048;
  ZeroConfig zero = SmallZero(GENERATE(0, 2, 3));
  zero.reduce_bucket_size = GENERATE(100'000, 600'000);
  const int ranks = GENERATE(1, 2, 3);
  CAPTURE(zero.stage, zero.reduce_bucket_size, ranks);
  ModelLayout layout = TinyLayout(model, zero, ranks);
  for (SegmentSpec& segment : layout.segments) segment.gpu_workspace = 0;  // what kernels of segments need is more
  PlanOptions options;
  options.stage = zero.stage;
  options.ranks = ranks;
  options.device = DeviceKind::cuda;
  int64_t want = 0, blocks_of_one = 0;
  for (int unit = 0; unit < static_cast<int>(layout.units.size()); ++unit)
    for (const ShardRange& range : layout.ShardRanges(unit, ranks - 1)) {
      want += SumOfSquaresWorkspaceBytes(range.count);
      blocks_of_one = std::max(blocks_of_one, SumOfSquaresWorkspaceBytes(range.count) / 8);
    }
  CHECK(BuildPlan(layout, options).price.workspace_bytes == want);
  CHECK((blocks_of_one > 1 || zero.reduce_bucket_size / ranks <= 65536));
  layout.segments.back().gpu_workspace = want + 1;
  CHECK(BuildPlan(layout, options).price.workspace_bytes == want + 1);
}

TEST_CASE("a forward-only plan runs in the memory of a few segments") {
  const ModelLayout layout = TinyLayout(TinyGpt(12), SmallZero(0), 1);
  PlanOptions o;
  o.training = false;
  const Plan plan = BuildPlan(layout, o);
  CHECK(plan.actions.size() == layout.segments.size());
  const SegmentSpec &mlp = layout.segments[2], &head = layout.segments.back();
  const int64_t mlp_bytes = LayOut(mlp.saved) + mlp.forward_scratch,
                head_bytes = LayOut(head.saved) + head.forward_scratch;
  CHECK(plan.arena_bytes[0] <= 2 * LayOut(mlp.output) + std::max(mlp_bytes, head_bytes));
}

TEST_CASE("a model of 7B parameters is planned, checked and priced") {
  ModelConfig m;
  m.layers = 32;
  m.hidden = 4096;
  m.heads = 32;
  m.kv_heads = 8;
  m.ffn = 14336;
  m.vocabulary = 32000;
  m.max_positions = 4096;
  m.norm = Norm::rms_norm;
  m.position = PositionKind::rope;
  m.activation = Activation::swiglu;
  m.bias = m.qkv_bias = m.tied_head = false;
  ZeroConfig zero;
  zero.stage = 3;
  const ModelLayout layout =
      BuildLayout(BuildSegments(m, DType::bf16, {1, 4096}, false, RecomputeMode::full), zero, 64);
  CHECK(layout.ParameterCount() == 7'241'732'096);  // Mistral-7B
  PlanOptions o;
  o.stage = 3;
  o.ranks = 64;
  o.compute = DType::bf16;
  o.micro_batches = 8;
  o.recompute = RecomputeMode::full;
  const Plan plan = BuildPlan(layout, o);
  CHECK(CheckRanks(layout, std::vector<Plan>(8, plan)).empty());
  CHECK(plan.price.step_seconds > plan.price.compute_seconds);
  CHECK(plan.price.exposed_comm_seconds > 0);
}

TEST_CASE("the predicted step hides the host's late updates under the forward, but for those of the first segment") {
  ModelConfig model = TinyGpt(12);
  model.tied_head = false;
  for (int stage = 1; stage <= 3; ++stage) {
    CAPTURE(stage);
    const ModelLayout layout = TinyLayout(model, SmallZero(stage), 2, DType::f32, {4, 64});
    PlanOptions o;
    o.ranks = 2;
    o.stage = stage;
    o.placement.optimizer = o.placement.gradients = Tier::host;
    Machine machine;
    machine.flops_f32 = 1e9;  // an hour of arithmetic to a minute of anything else
    machine.memory_bytes = machine.link_bytes = 1e12;
    machine.latency_seconds = 0;
    machine.host_to_device = machine.device_to_host = {0, 1e12};
    machine.host_memory_bytes = 1e18;
    const double free_host = BuildPlan(layout, o, machine).price.step_seconds;
    double updated = 0;  // bytes that all updates, or those of the embedding, touch
    double first = 0;
    for (int unit = 0; unit < static_cast<int>(layout.units.size()); ++unit) {
      const double bytes = 4.0 * 8 * static_cast<double>(layout.ShardNumel(unit));  // reads 4, writes 4 numbers
      updated += bytes;
      const auto& units = layout.units_of[0];
      if (std::find(units.begin(), units.end(), unit) != units.end()) first += bytes;
    }
    const double forward = free_host / 4;  // of three passes the shortest
    machine.host_memory_bytes = updated / (forward / 2);
    const double step = BuildPlan(layout, o, machine).price.step_seconds;
    const double exposed = first / machine.host_memory_bytes;
    CHECK(step > free_host + 0.9 * exposed);
    CHECK(step < free_host + 0.5 * updated / machine.host_memory_bytes);
  }
}

TEST_CASE("the predicted step is that of streams which run side by side") {
  ModelLayout layout;
  layout.ranks = 2;
  Machine machine;
  machine.flops_f32 = 1;
  machine.link_bytes = 1;
  machine.latency_seconds = 0.5;
  auto action = [](ActionKind kind, StreamKind stream, double flops, int64_t bytes, std::vector<int> waits) {
    Action a;
    a.kind = kind;
    a.stream = stream;
    a.flops = flops;
    a.bytes = bytes;
    a.waits = std::move(waits);
    return a;
  };
  Plan plan;
  plan.actions = {action(ActionKind::gather, StreamKind::gather, 0, 2, {}),              // 0 to 2.5
                  action(ActionKind::forward, StreamKind::compute, 1, 0, {}),            // 0 to 1
                  action(ActionKind::gather, StreamKind::gather, 0, 4, {1}),             // 2.5 to 7
                  action(ActionKind::backward_input, StreamKind::compute, 3, 0, {0}),    // 2.5 to 5.5
                  action(ActionKind::backward_weight, StreamKind::compute, 1, 0, {2})};  // 7 to 8
  const Price price = PriceOf(layout, plan, machine);
  CHECK(price.step_seconds == 8);
  CHECK(price.compute_seconds == 5);
  CHECK(price.exposed_comm_seconds == 3);
}

TEST_CASE("one rank exposes no communication") {
  const ModelLayout layout = TinyLayout(TinyGpt(), SmallZero(0), 1);
  Machine machine;
  machine.memory_bytes = 1e30;
  const Plan plan = BuildPlan(layout, {});
  double flops = 0;
  for (const Action& action : plan.actions) {
    flops += action.flops;
    CHECK(action.bytes == 0);
  }
  const Price price = PriceOf(layout, plan, machine);
  CHECK(price.compute_seconds == Approx(flops / machine.flops_f32));
  CHECK(price.step_seconds == Approx(price.compute_seconds));
}

}  // namespace
}  // namespace ds
