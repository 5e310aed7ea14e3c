// What a machine file does to a plan: its law of rates on constructed files, and what is used where it does not fit.
#include <limits>

#include "runtime/plan/machine_match.h"
#include "runtime/plan/price.h"
#include "runtime/plan/products.h"
#include "runtime/plan/rates.h"
#include "test/catch.h"
#include "test/plan/machines.h"
#include "test/plan/models.h"

namespace ds {
namespace {

using test::FullMachineFile;

MatMulKey Product(int64_t m, int64_t n, int64_t k, DType ab = DType::bf16, bool ta = false, bool tb = false) {
  return {m, n, k, ab, ab, ta, tb};
}

TEST_CASE("a product's rate is that of the nearest measured shape") {
  const std::vector<MatMulRate> measured = {{DType::bf16, 64, 64, 64, false, false, 1},
                                            {DType::bf16, 1024, 1024, 1024, false, false, 2},
                                            {DType::bf16, 64, 64, 64, true, false, 3},
                                            {DType::f32, 512, 64, 64, false, false, 4}};
  CHECK(MatMulRateOf(measured, Product(1024, 1024, 1024)) == 2);
  CHECK(MatMulRateOf(measured, Product(8, 64, 64)) == 1);
  CHECK(MatMulRateOf(measured, Product(64, 64, 1024)) == 1);
  CHECK(MatMulRateOf(measured, Product(64, 1024, 1024)) == 2);
  CHECK(MatMulRateOf(measured, Product(256, 256, 256)) == 1);                        // as far from both: the first
  CHECK(MatMulRateOf(measured, Product(4096, 4096, 4096, DType::bf16, true)) == 3);  // the same transposes
  CHECK(MatMulRateOf(measured, Product(1024, 1024, 1024, DType::bf16, true, true)) == 2);  // none has them
  CHECK(MatMulRateOf(measured, Product(1024, 1024, 1024, DType::f16)) == 2);
  CHECK(MatMulRateOf(measured, Product(1024, 1024, 1024, DType::f32)) == 4);
  CHECK_FALSE(MatMulRateOf(measured, Product(64, 64, 64, DType::f64)));
  CHECK_FALSE(MatMulRateOf(measured, Product(64, 64, 64, DType::f8_e4m3)));  // no 16-bit one stands in for 8 bits
  CHECK(MatMulRateOf({{DType::f8_e4m3, 64, 64, 64, false, true, 5}}, Product(64, 64, 64, DType::f8_e5m2)) == 5);
}

TEST_CASE("attention's rate is of the same pass, rather of the same determinism") {
  const std::vector<AttentionRate> measured = {{DType::bf16, 128, 64, false, true, 1},
                                               {DType::bf16, 2048, 64, true, true, 2},
                                               {DType::bf16, 128, 64, true, false, 3},
                                               {DType::bf16, 4096, 64, true, false, 4}};
  CHECK(AttentionRateOf(measured, {DType::bf16, 4096, 64, false, true}) == 1);
  CHECK(AttentionRateOf(measured, {DType::bf16, 128, 64, true, true}) == 2);
  CHECK(AttentionRateOf(measured, {DType::f16, 256, 64, true, false}) == 3);
  CHECK(AttentionRateOf(measured, {DType::bf16, 2048, 64, true, false}) == 4);
  CHECK(AttentionRateOf(measured, {DType::bf16, 128, 64, false, false}) == 1);
  CHECK_FALSE(AttentionRateOf(measured, {DType::f32, 128, 64, false, true}));
}

TEST_CASE("a collective takes its latency, by the hops of a ring, and its bytes") {
  const std::vector<CollectiveRate> measured = {{CollectiveKind::all_gather, 2, {1, 100}, {}},
                                                {CollectiveKind::all_gather, 8, {14, 10}, {}}};
  CHECK(CollectiveSeconds(measured, CollectiveKind::all_gather, 2, 50) == 1.5);
  CHECK(CollectiveSeconds(measured, CollectiveKind::all_gather, 3, 50) == 2.5);
  CHECK(CollectiveSeconds(measured, CollectiveKind::all_gather, 16, 50) == 35);
  CHECK_FALSE(CollectiveSeconds(measured, CollectiveKind::reduce_scatter, 2, 50));
}

TEST_CASE("a machine is the file's, and the default where the file has nothing") {
  MachineFile file = FullMachineFile();
  const Machine usual = DefaultMachine(DeviceKind::cuda);
  Machine machine = MachineOf(file);
  CHECK(machine.flops_16bit == 6.5e14);
  CHECK(machine.flops_f32 == 4e13);
  CHECK(machine.flops_8bit == 1.2e15);
  CHECK(machine.flops_f64 == usual.flops_f64);
  CHECK(machine.memory_bytes == 4.2e12);
  CHECK(machine.library_bytes == 560 << 20);
  CHECK(machine.communicator_bytes == 0);  // measured: none, and not the default
  CHECK(machine.collectives == file.collectives);

  MachineFile bare;
  bare.device = {DeviceKind::cuda, "x", 1, 0, "", "", "", 0};
  machine = MachineOf(bare);
  CHECK(machine.flops_16bit == usual.flops_16bit);
  CHECK(machine.flops_8bit == usual.flops_8bit);
  CHECK(machine.memory_bytes == usual.memory_bytes);
  CHECK(machine.library_bytes == usual.library_bytes);
  CHECK(machine.communicator_bytes == usual.communicator_bytes);

  CHECK(MachineFor(file, DeviceKind::cuda).flops_16bit == 6.5e14);
  CHECK(MachineFor(file, DeviceKind::cpu).flops_16bit == DefaultMachine(DeviceKind::cpu).flops_16bit);
  CHECK(MachineFor(std::nullopt, DeviceKind::cuda).flops_16bit == usual.flops_16bit);
}

TEST_CASE("disks and the host's optimizer are priced by what was measured of them, shared by a host's ranks") {
  MachineFile file;
  file.device.kind = DeviceKind::cuda;
  file.device.count = 4;
  const Machine usual = DefaultMachine(DeviceKind::cuda);
  const std::vector<std::string> folders = {"/fast/a", "/fast/b", "/slow"};
  CHECK(MachineFor(file, DeviceKind::cuda, folders).file_read.bytes_per_second == usual.file_read.bytes_per_second);
  CHECK(MachineFor(file, DeviceKind::cuda, folders).disk_ranks == 1);
  file.disks = {{"/", 1e9, 1.5e9, true}, {"/fast", 4e9, 6e9, true}, {"/fastest", 9e9, 9e9, true}};
  file.host_optimizer = {16, 2e11};
  const Machine machine = MachineFor(file, DeviceKind::cuda, folders);  // two of them on one disk
  CHECK(machine.file_read.bytes_per_second == 7.5e9);
  CHECK(machine.file_write.bytes_per_second == 5e9);
  CHECK(machine.host_memory_bytes == 2e11);
  CHECK(machine.disk_ranks == 4);
  CHECK(machine.host_memory_ranks == 4);
  CHECK(MachineFor(file, DeviceKind::cuda, {"/fast"}).file_read.bytes_per_second == 6e9);
  CHECK(MachineFor(file, DeviceKind::cuda).file_read.bytes_per_second == usual.file_read.bytes_per_second);
  file.disks.erase(file.disks.begin());  // above none: the slowest
  CHECK(MachineFor(file, DeviceKind::cuda, {"/slow"}).file_write.bytes_per_second == 4e9);
  file.device.kind = DeviceKind::cpu;
  CHECK(MachineFor(file, DeviceKind::cpu, {"/slow"}).disk_ranks == 1);

  ZeroConfig zero = test::SmallZero(2);
  PlanOptions options;
  options.stage = 2;
  options.placement.optimizer = options.placement.gradients = Tier::file;
  options.placement.steps_early = true;
  options.device = DeviceKind::cuda;
  Machine slow = machine;
  slow.file_write.bytes_per_second /= 1000;  // what a step takes is the writing then
  const auto step = [&](int ranks, const Machine& of) {
    options.ranks = ranks;
    const ModelLayout layout = test::TinyLayout(test::TinyGpt(), zero, ranks, DType::bf16);
    options.compute = DType::bf16;
    const Plan plan = BuildPlan(layout, options, of);
    double written = 0;
    for (const Action& action : plan.actions)
      if (action.stream == StreamKind::write)
        written += of.file_write.latency_seconds +
                   static_cast<double>(action.bytes) / of.file_write.bytes_per_second * std::min(ranks, 4);
    REQUIRE(written > 0);
    return std::pair(plan.price.step_seconds, written);
  };
  for (int ranks : {1, 2, 8}) {
    const auto [taken, written] = step(ranks, slow);
    CHECK(taken == Approx(written).epsilon(0.05));
    CHECK(taken >= written);
  }
}

TEST_CASE("a step's compute time is the sum of its products and attention at their own rates") {
  PlanOptions options;
  options.recompute = GENERATE(RecomputeMode::none, RecomputeMode::activation, RecomputeMode::full);
  const ModelLayout layout =
      test::TinyLayout(test::TinyLlama(), test::SmallZero(0), 1, DType::f32, {2, 16}, options.recompute);
  options.deterministic = GENERATE(true, false);
  MachineFile file;
  file.device.name = "x";
  file.memory_bytes_per_second = 1e30;
  file.matmul = {{DType::f32, 64, 64, 64, false, false, 1e9}};
  file.attention = {{DType::f32, 16, 16, false, true, 1e8},
                    {DType::f32, 16, 16, true, true, 1e7},
                    {DType::f32, 16, 16, true, false, 1e6}};
  const Plan plan = BuildPlan(layout, options, MachineOf(file));
  double products = 0, forward = 0, backward = 0, all = 0;
  for (const Action& action : plan.actions) {
    all += action.flops;
    const std::optional<Pass> pass = PassOf(action.kind);
    if (!pass) continue;
    const SegmentSpec& segment = layout.segments[action.segment];
    for (const ProductSpec& product : segment.products)
      if (product.pass == *pass) products += ProductFlops(product.key);
    const double product = segment.attention.product_flops;
    if (*pass == Pass::backward_input) backward += 5 * product;
    if (*pass == Pass::forward || *pass == Pass::recompute) forward += 2 * product;
  }
  REQUIRE(products > 0);
  REQUIRE(backward > 0);
  const double rest = all - products - forward - backward;  // the embedding's sums
  CHECK(rest == Approx(2 * 2.0 * 32 * 64));
  CHECK(plan.price.compute_seconds ==
        Approx(products / 1e9 + forward / 1e8 + backward / (options.deterministic ? 1e7 : 1e6) + rest / 1e9));
}

TEST_CASE("8-bit products take their rate, and the time of reading their operands twice and writing them once") {
  const ModelConfig model = test::TinyLlama();
  PlanOptions options;
  options.compute = DType::bf16;
  MachineFile file;
  file.device.name = "x";
  file.memory_bytes_per_second = 1e9;
  file.matmul = {{DType::bf16, 64, 64, 64, false, false, 1e7}};
  if (GENERATE(false, true)) file.matmul.push_back({DType::f8_e4m3, 64, 64, 64, false, true, 1e6});
  const bool measured = file.matmul.size() == 2;
  const auto layout_of = [&](bool fp8) {
    return test::TinyLayout(model, test::SmallZero(0), 1, DType::bf16, {2, 16}, RecomputeMode::none, fp8);
  };
  const ModelLayout layout = layout_of(true), plain = layout_of(false);
  double flops = 0, bytes = 0;
  for (const SegmentSpec& segment : layout.segments)
    for (const ProductSpec& product : segment.products)
      if (IsFp8(product.key.ab) && product.pass != Pass::recompute) {
        flops += ProductFlops(product.key);
        bytes += 5.0 * static_cast<double>((product.key.m + product.key.n) * product.key.k);
      }
  REQUIRE(flops > 0);
  const Machine machine = MachineOf(file);
  const double fp8 = BuildPlan(layout, options, machine).price.compute_seconds;
  const double bf16 = BuildPlan(plain, options, machine).price.compute_seconds;
  CHECK(fp8 - bf16 == Approx(flops / (measured ? 1e6 : machine.flops_8bit) - flops / 1e7 + bytes / 1e9));
}

TEST_CASE("a segment's products and attention are its FLOPs") {
  for (const ModelConfig& model : {test::TinyGpt(), test::TinyLlama()}) {
    const bool fp8 = GENERATE(false, true);
    const DType compute = fp8 ? DType::bf16 : DType::f32;
    for (const SegmentSpec& segment : BuildSegments(model, compute, {2, 16}, false, RecomputeMode::none, fp8)) {
      if (segment.kind == SegmentKind::embedding) continue;
      INFO(segment.name);
      double flops[4] = {};
      for (const ProductSpec& product : segment.products)
        flops[static_cast<int>(product.pass)] += ProductFlops(product.key);
      const double attention = segment.attention.product_flops;
      CHECK(flops[static_cast<int>(Pass::forward)] + 2 * attention == Approx(segment.forward_flops));
      CHECK(flops[static_cast<int>(Pass::recompute)] + 2 * attention == Approx(segment.recompute_flops));
      CHECK(flops[static_cast<int>(Pass::backward_input)] + 5 * attention == Approx(segment.backward_input_flops));
      CHECK(flops[static_cast<int>(Pass::backward_weight)] == Approx(segment.backward_weight_flops));
    }
  }
}

TEST_CASE("collectives are priced by what was measured of their kind") {
  const ModelLayout layout = test::TinyLayout(test::TinyGpt(), test::SmallZero(3), 2);
  PlanOptions options;
  options.ranks = 2;
  options.stage = 3;
  Machine machine;
  machine.flops_f32 = machine.memory_bytes = machine.link_bytes = 1e30;
  machine.latency_seconds = 0;
  CHECK(BuildPlan(layout, options, machine).price.step_seconds < 1e-9);
  machine.collectives = {{CollectiveKind::all_gather, 2, {1, 1e30}, {}}};
  const Plan plan = BuildPlan(layout, options, machine);
  int gathers = 0;
  for (const Action& action : plan.actions) gathers += action.kind == ActionKind::gather;
  REQUIRE(gathers > 2);
  CHECK(plan.price.step_seconds >= gathers);  // all on one stream; Norm's is an all_gather too
  CHECK(plan.price.step_seconds <= gathers + 1.001);
}

TEST_CASE("products of a plan: accumulation, what a GPU may fuse, and the head's blocks") {
  ModelConfig model = test::TinyGpt(1);
  model.activation = Activation::gelu_tanh;
  const MicroBatchShape shape{20, 16};  // 320 rows: a block of 256 and one of 64
  auto keys = [&](DType compute, DeviceKind device, int64_t micro_batches, bool training = true) {
    const ModelLayout layout = test::TinyLayout(model, test::SmallZero(0), 1, compute, shape);
    PlanOptions options;
    options.device = device, options.compute = compute, options.micro_batches = micro_batches;
    options.training = training;
    return MatMulKeysOf(layout, BuildPlan(layout, options));
  };
  const MatMulKey up{320, 256, 64, DType::bf16, DType::bf16, false, true, false, MatMulEpilogue::bias};
  MatMulKey fused = up, gradient{256, 64, 320, DType::bf16, DType::f32, true};
  fused.epilogue = MatMulEpilogue::bias_gelu;
  const MatMulKey logits{320, 320, 64, DType::bf16, DType::bf16, false, true};

  const auto gpu = keys(DType::bf16, DeviceKind::cuda, 1);
  CHECK(gpu.contains(up));
  CHECK(gpu.contains(fused));
  CHECK(gpu.contains({320, 256, 64, DType::bf16, DType::bf16, false, false, false, MatMulEpilogue::gelu_backward}));
  CHECK(gpu.contains(gradient));
  CHECK(gpu.contains(logits));
  // The last product of a half block adds the residual stream, or does not: with active dropout.
  for (const int64_t in : {64, 256})
    for (const bool adds : {false, true})
      CHECK(gpu.contains({320, 64, in, DType::bf16, DType::bf16, false, true, adds, MatMulEpilogue::bias}));
  gradient.accumulate = true;
  CHECK_FALSE(gpu.contains(gradient));
  CHECK(keys(DType::bf16, DeviceKind::cuda, 2).contains(gradient));
  CHECK_FALSE(keys(DType::f32, DeviceKind::cuda, 1)
                  .contains({320, 256, 64, DType::f32, DType::f32, false, true, false, MatMulEpilogue::bias_gelu}));

  for (const auto& blocks : {keys(DType::bf16, DeviceKind::cpu, 1), keys(DType::bf16, DeviceKind::cuda, 1, false)}) {
    CHECK_FALSE(blocks.contains(logits));
    CHECK(blocks.contains({256, 320, 64, DType::bf16, DType::f32, false, true}));
    CHECK(blocks.contains({64, 320, 64, DType::bf16, DType::f32, false, true}));
  }
  CHECK_FALSE(keys(DType::bf16, DeviceKind::cpu, 1).contains(fused));
}

TEST_CASE("model FLOPs are six times the matrices' parameters a token, and causal attention's") {
  ModelConfig model = test::TinyLlama();
  const ModelLayout layout = test::TinyLayout(model, test::SmallZero(0), 1);
  PlanOptions options;
  options.micro_batches = 3;
  double matrices = 0;  // of those that are multiplied: not the token table
  for (const SegmentSpec& segment : layout.segments)
    if (segment.kind != SegmentKind::embedding)
      for (const ParamSpec& param : segment.params)
        if (param.shape.rank() == 2) matrices += static_cast<double>(param.shape.numel());
  const double tokens = 3 * 2 * 16;
  // A layer: two products forward and four backward, of queries of every head with half of 16 keys.
  const double attention = 2 * 6 * tokens * 16 * static_cast<double>(model.heads * model.head_size());
  CHECK(ModelFlopsOfStep(layout, options) == Approx(6 * matrices * tokens + attention));
  options.recompute = RecomputeMode::full;
  CHECK(ModelFlopsOfStep(layout, options) == Approx(6 * matrices * tokens + attention));
}

TEST_CASE("a machine file of another device is told, and does not choose") {
  const MachineFile file = FullMachineFile();
  CHECK(MachineMismatch(file, DeviceKind::cuda, "NVIDIA H200").empty());
  CHECK(MachineMismatch(file, DeviceKind::cuda, "NVIDIA A100-SXM4-80GB").find("of NVIDIA H200") != std::string::npos);
  CHECK(MachineMismatch(file, DeviceKind::cpu, "x").find("computes on CPUs") != std::string::npos);
  CHECK(ChoicesMismatch(file, "NVIDIA H200", 120403).empty());
  CHECK(ChoicesMismatch(file, "NVIDIA H200", 120500).find("version 120403") != std::string::npos);
  CHECK(ChoicesMismatch(file, "NVIDIA L4", 120403).find("this is NVIDIA L4") != std::string::npos);
  CHECK(ChoicesMismatch(MachineFile{}, "NVIDIA L4", 1).empty());
}

TEST_CASE("peaks: the file's of this device, else a known GPU's, else none") {
  MachineFile file = FullMachineFile();
  file.peak_flops[DType::bf16] = 5e14;
  CHECK(PeakFlops(file, DeviceKind::cuda, "NVIDIA H200", DType::bf16) == 5e14);
  CHECK(PeakFlops(std::nullopt, DeviceKind::cuda, "NVIDIA H200", DType::bf16) == 989e12);
  CHECK(PeakFlops(file, DeviceKind::cuda, "NVIDIA A100-SXM4-80GB", DType::bf16) == 312e12);  // not the file's
  CHECK(PeakFlops(file, DeviceKind::cuda, "NVIDIA H200", DType::f64) == 67e12);              // the file has none
  CHECK_FALSE(PeakFlops(std::nullopt, DeviceKind::cuda, "Tesla V100-SXM2-16GB", DType::bf16));
  CHECK_FALSE(PeakFlops(std::nullopt, DeviceKind::cuda, "NVIDIA H200 MIG 1g.18gb", DType::bf16));
  CHECK_FALSE(PeakFlops(std::nullopt, DeviceKind::cpu, "NVIDIA H200", DType::bf16));
  CHECK_FALSE(PeakFlops(file, DeviceKind::cpu, "NVIDIA H200", DType::bf16));
}

}  // namespace
}  // namespace ds
