// Promises: the products that a plan names are those that a run multiplies; what a GPU's executors take is what the
// plan counted; ranks agree on algorithms; mfu and training.deterministic reach where they are meant to.
//
// Calls of MatMul are recorded on their way: the linker gives its callers ours (test/CMakeLists.txt).
#include <algorithm>
#include <mutex>
#include <set>
#include <thread>

#include "kernels/matmul.h"
#include "runtime/base/cpu_name.h"
#include "runtime/exec/gpu_executor.h"
#include "runtime/plan/executor_memory.h"
#include "runtime/plan/planner.h"
#include "runtime/plan/price.h"
#include "runtime/plan/products.h"
#include "runtime/train/matmul_agreement.h"
#include "test/catch.h"
#include "test/layout/fake_gpu.h"
#include "test/layout/harness.h"

namespace {

struct Recording {
  std::mutex mutex;
  bool on = false;
  std::set<ds::MatMulKey> products;
  std::set<bool> deterministic;  // of their contexts

  void Start() {
    std::lock_guard lock(mutex);
    on = true;
    products.clear();
    deterministic.clear();
  }
};
Recording recording;

ds::MatMulKey KeyOf(const ds::Tensor& a, const ds::Tensor& c, const ds::MatMulOptions& options) {
  const auto columns = [](const ds::Tensor& t) { return t.shape[t.shape.rank() - 1]; };
  const auto rows = [&](const ds::Tensor& t) { return t.numel() / columns(t); };
  ds::MatMulKey key{rows(c), columns(c), options.transpose_a ? rows(a) : columns(a), a.dtype, c.dtype};
  key.transpose_a = options.transpose_a, key.transpose_b = options.transpose_b;
  key.accumulate = options.accumulate;
  key.epilogue = options.bias ? ds::MatMulEpilogue::bias : ds::MatMulEpilogue::none;
  return key;
}

}  // namespace

#define DS_MATMUL _ZN2ds6MatMulERKNS_13KernelContextENS_6TensorES3_S3_RKNS_13MatMulOptionsE
#define DS_JOIN2(a, b) a##b
#define DS_JOIN(a, b) DS_JOIN2(a, b)

extern "C" {
void DS_JOIN(__real_, DS_MATMUL)(const ds::KernelContext&, ds::Tensor, ds::Tensor, ds::Tensor,
                                 const ds::MatMulOptions&);
void DS_JOIN(__wrap_, DS_MATMUL)(const ds::KernelContext& context, ds::Tensor a, ds::Tensor b, ds::Tensor c,
                                 const ds::MatMulOptions& options) {
  if (recording.on) {
    std::lock_guard lock(recording.mutex);
    recording.products.insert(KeyOf(a, c, options));
    recording.deterministic.insert(context.deterministic);
  }
  DS_JOIN(__real_, DS_MATMUL)(context, a, b, c, options);
}
}

namespace ds::layout_test {
namespace {

std::string Text(const std::set<MatMulKey>& keys) {
  std::string text;
  for (const MatMulKey& key : keys)
    text += std::to_string(key.m) + "x" + std::to_string(key.n) + "x" + std::to_string(key.k) + " " + NameOf(key.ab) +
            ">" + NameOf(key.c) + (key.transpose_a ? " Ta" : "") + (key.transpose_b ? " Tb" : "") +
            (key.accumulate ? " +=" : "") + " e" + std::to_string(static_cast<int>(key.epilogue)) + "\n";
  return text;
}

JobSpec Short(JobSpec spec) {
  spec.training.steps = 2;
  spec.checkpoint.every = -1;
  return spec;
}

TEST_CASE("a CPU run multiplies exactly the products that its plans name") {
  const bool llama = GENERATE(false, true);
  const Precision precision = GENERATE(Precision::fp32, Precision::bf16);
  const RecomputeMode recompute = GENERATE(RecomputeMode::none, RecomputeMode::activation, RecomputeMode::full);
  const int64_t accumulation = GENERATE(1, 2);
  CAPTURE(llama, static_cast<int>(precision), static_cast<int>(recompute), accumulation);
  JobSpec spec = Short(llama ? TinyLlama() : TinySpec());
  spec.precision = precision;
  spec.training.recompute = recompute;
  spec.batch.train_batch_size = 36;  // 288 or 576 rows: more than a block of logits
  spec.batch.accumulation = accumulation;
  spec.training.validate_every = 2;
  spec.training.validate_batches = 1;
  spec.data.validation = spec.data.train;

  recording.Start();
  const RunOutcome run = Run(spec, RunOptions{});
  recording.on = false;
  REQUIRE(run.error == "");

  spec.batch.micro_batch_size = 36 / accumulation;
  const ModelLayout layout = LayoutOf(spec, 1);
  PlanOptions options = PlanOptionsOf(spec, 0, 1);
  std::set<MatMulKey> planned = MatMulKeysOf(layout, BuildPlan(layout, options));
  options.training = false;
  planned.merge(MatMulKeysOf(layout, BuildPlan(layout, options)));
  CHECK(Text(recording.products) == Text(planned));
}

TEST_CASE("training.deterministic reaches the kernels of both executors") {
  JobSpec spec = Short(TinySpec());
  spec.training.deterministic = GENERATE(true, false);
  RunOptions options;
  if (GENERATE(false, true)) options.gpu = [](int) { return MakeFakeGpu(); };
  recording.Start();
  REQUIRE(Run(spec, options).error == "");
  recording.on = false;
  CHECK(recording.deterministic == std::set<bool>{spec.training.deterministic});
}

// What Trainer::Allocate takes, for a GPU's plan. One rank: ranks that are threads need memory that NCCL does not.
TEST_CASE("the device memory that a GPU job takes is what its plan predicts, less the libraries'") {
  JobSpec spec = GENERATE(true, false) ? TinySpec() : TinyLlama();
  spec.data.reset_attention = GENERATE(true, false);
  spec.zero.stage = GENERATE(0, 3);
  spec.batch.accumulation = GENERATE(1, 3);
  spec.precision = GENERATE(Precision::fp32, Precision::bf16);
  spec.training.fp8 = GENERATE(false, true) && spec.precision == Precision::bf16;
  spec.training.recompute =
      GENERATE(RecomputeMode::none, RecomputeMode::activation, RecomputeMode::attention, RecomputeMode::full);
  spec.batch.micro_batch_size = 4;
  const ModelLayout layout = LayoutOf(spec, 1);
  PlanOptions options = PlanOptionsOf(spec, 0, 1, DeviceKind::cuda);
  const Plan plan = BuildPlan(layout, options);
  options.training = false;
  const Plan forward = BuildPlan(layout, options);

  FakeMemory count;
  const std::unique_ptr<Gpu> gpu = MakeFakeGpu(&count);
  const ParamStore store(layout, plan, gpu.get());
  const Arena arena({&plan, &forward}, gpu.get());
  const Memory workspace(plan.price.workspace_bytes, gpu.get());
  const MicroBatchShape shape{spec.batch.micro_batch_size, spec.data.sequence_length};
  std::vector<std::unique_ptr<Segment>> segments;
  for (const SegmentSpec& segment : layout.segments)
    segments.push_back(MakeSegment(segment, {spec.model, plan.options.compute, shape, Device{}, gpu.get()}));
  const Optimizer optimizer(spec.optimizer, layout, 0);
  Communicators communicators = Communicators::Make(SingleRankFactory(), {});
  auto executor = [&](const Plan& of) {
    return GpuExecutor({BindContext{layout, of, store, arena, shape, spec.model.hidden}, segments, &optimizer,
                        communicators, 1, gpu.get(), nullptr, workspace.Bytes(0, workspace.bytes())});
  };
  const int64_t before = count.device;
  const GpuExecutor training = executor(plan);
  CHECK(count.device - before == ExecutorBytes(layout, plan.options));
  const GpuExecutor validating = executor(forward);
  const Machine machine = DefaultMachine(DeviceKind::cuda);
  CHECK(count.device == plan.price.peak_bytes[static_cast<int>(Tier::device)] - machine.LibraryBytes(plan.options));
  CHECK(count.device > 0);
}

TEST_CASE("a job that needs more than a GPU has left is refused before it takes any of it") {
  JobSpec spec = Short(TinySpec());
  spec.batch.micro_batch_size = spec.batch.train_batch_size / spec.batch.accumulation;
  const ModelLayout layout = LayoutOf(spec, 1);
  const Plan plan = BuildPlan(layout, PlanOptionsOf(spec, 0, 1));  // the fake GPU's memory is the host's
  const int64_t needed = plan.price.peak_bytes[0] + plan.price.peak_bytes[1];
  FakeMemory memory;
  memory.total = needed + 1000;
  RunOptions options;
  options.gpu = [&](int) { return MakeFakeGpu(&memory); };
  options.gpu_idle_bytes = 1001;
  const RunOutcome refused = Run(spec, options);
  CHECK(refused.error.find("the plan does not fit: a rank needs " + FormatBytes(needed)) != std::string::npos);
  CHECK(memory.most == 0);
  options.gpu_idle_bytes = 1000;
  CHECK(Run(spec, options).error == "");
  CHECK(memory.most > 0);
  CHECK(memory.device == 0);  // all of it given back
}

TEST_CASE("all ranks take the algorithms that rank 0 timed, and none where the library has none") {
  constexpr int kRanks = 3;
  ThreadWorld world(kRanks, std::chrono::minutes(1));
  const std::set<MatMulKey> keys = {{1, 2, 3}, {4, 5, 6}, {7, 8, 9, DType::bf16, DType::f32, true}};
  std::vector<MatMulChoices> choices(kRanks);
  std::vector<int> timed(kRanks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank)
    threads.emplace_back([&, rank] {
      const auto communicator = world.Make(rank, "control");
      choices[rank] = AgreeOnMatMulChoices(
          keys,
          [&](const MatMulKey& key) -> std::optional<MatMulAlgorithm> {
            ++timed[rank];
            if (key.m == 4) return std::nullopt;
            MatMulAlgorithm algorithm;
            algorithm.words.fill(0x8000000000000000 + static_cast<uint64_t>(100 * rank + key.m));
            return algorithm;
          },
          *communicator);
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(timed == std::vector<int>{3, 0, 0});
  REQUIRE(choices[0].size() == 2);
  CHECK(choices[0].at({1, 2, 3}).words[7] == 0x8000000000000001);
  CHECK(choices[0].at({7, 8, 9, DType::bf16, DType::f32, true}).words[0] == 0x8000000000000007);
  CHECK(choices[1] == choices[0]);
  CHECK(choices[2] == choices[0]);
}

MachineFile OfThisCpu() {
  MachineFile file;
  file.host = "here";
  file.device.name = CpuName();
  file.device.threads = 2;
  file.peak_flops[DType::f32] = 1e12;
  file.matmul = {{DType::f32, 64, 64, 64, false, false, 1e6}};
  return file;
}

TEST_CASE("mfu is the model's FLOPs over a step's time and the peak of as many threads; none without a peak") {
  JobSpec spec = Short(TinySpec());
  RunOptions options;
  options.ranks = 2;
  RunOutcome run = Run(spec, options);
  REQUIRE(run.error == "");
  CHECK_FALSE(run.records[0].mfu);
  const double usual = run.result.predicted.step_ms;

  options.machine = OfThisCpu();
  run = Run(spec, options);
  REQUIRE(run.error == "");
  spec.batch.micro_batch_size = spec.batch.train_batch_size / 2 / spec.batch.accumulation;
  const double flops = ModelFlopsOfStep(LayoutOf(spec, 2), PlanOptionsOf(spec, 0, 2));
  for (const StepRecord& record : run.records) {
    REQUIRE(record.mfu);
    CHECK(*record.mfu == Approx(flops / (record.step_ms / 1e3) / (1e12 / 2)));  // one thread of two
  }
  CHECK(run.result.predicted.step_ms > 10 * usual);  // priced by the file: a very slow machine
  CHECK(run.events.end() ==
        std::find_if(run.events.begin(), run.events.end(), [](const auto& event) { return event.first == "machine"; }));
}

TEST_CASE("with 8-bit products mfu is of their peak where the file has it, else of bf16's") {
  JobSpec spec = Short(TinyLlama());
  spec.precision = Precision::bf16;
  spec.training.fp8 = true;
  RunOptions options;
  options.machine = OfThisCpu();
  options.machine->peak_flops[DType::bf16] = 2e12;
  const bool known = GENERATE(false, true);
  if (known) options.machine->peak_flops[DType::f8_e4m3] = 4e12;
  const RunOutcome run = Run(spec, options);
  REQUIRE(run.error == "");
  spec.batch.micro_batch_size = spec.batch.train_batch_size / spec.batch.accumulation;
  const double flops = ModelFlopsOfStep(LayoutOf(spec, 1), PlanOptionsOf(spec, 0, 1));
  const StepRecord& record = run.records.front();
  REQUIRE(record.mfu);
  CHECK(*record.mfu == Approx(flops / (record.step_ms / 1e3) / ((known ? 4e12 : 2e12) / 2)));  // one thread of two
}

TEST_CASE("a machine file of another device is told in an event; the plan keeps to the default") {
  const JobSpec spec = Short(TinySpec());
  RunOptions options;
  const double usual = Run(spec, options).result.predicted.step_ms;
  options.machine = OfThisCpu();
  options.machine->device = {DeviceKind::cuda, "NVIDIA H200", 8, 0, "", "", "", 0};
  const RunOutcome run = Run(spec, options);
  REQUIRE(run.error == "");
  CHECK_FALSE(run.records[0].mfu);
  CHECK(run.result.predicted.step_ms == usual);
  REQUIRE(run.events.size() >= 1);
  CHECK(run.events[0].first == "machine");
  CHECK(run.events[0].second.find("computes on CPUs") != std::string::npos);
}

}  // namespace
}  // namespace ds::layout_test
