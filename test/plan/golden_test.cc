// Promise: a plan reads as text, and changes only when somebody means it to. After a change that is meant, read
//   DS_UPDATE_GOLDEN=1 build/bin/test-plan '[golden]' && git diff test/plan/golden
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "runtime/base/file.h"
#include "test/catch.h"
#include "test/plan/models.h"

namespace ds {
namespace {
using namespace test;

/// Rank 0 of two ranks, two micro-batches, a model of two layers.
PlanOptions Options(int stage) {
  PlanOptions o;
  o.ranks = 2;
  o.stage = stage;
  o.micro_batches = 2;
  return o;
}

void CheckGolden(const std::string& name, const ModelConfig& model, const PlanOptions& options, bool fp8 = false) {
  ZeroConfig zero = SmallZero(options.stage);
  zero.reduce_bucket_size = 16384;
  const ModelLayout layout = TinyLayout(model, zero, options.ranks, options.compute, {2, 16}, options.recompute, fp8);
  const std::string text = ToText(layout, BuildPlan(layout, options));
  const std::filesystem::path path = std::string(DS_SOURCE_DIR) + "/test/plan/golden/" + name + ".txt";
  if (std::getenv("DS_UPDATE_GOLDEN")) WriteFileAtomically(path, text);
  INFO("differs from " << path << "; if that is meant: DS_UPDATE_GOLDEN=1 build/bin/test-plan '[golden]'");
  REQUIRE(std::filesystem::exists(path));
  CHECK(ReadFile(path) == text);
}

TEST_CASE("plans print as the golden texts", "[golden]") {
  CheckGolden("stage0", TinyGpt(), Options(0));
  CheckGolden("stage1", TinyGpt(), Options(1));
  CheckGolden("stage2", TinyGpt(), Options(2));
  CheckGolden("stage3", TinyGpt(), Options(3));

  PlanOptions exact = Options(0);
  exact.exact_sharding = true;
  CheckGolden("stage0-exact", TinyGpt(), exact);

  PlanOptions recompute = Options(2);
  recompute.recompute = RecomputeMode::full;
  recompute.compute = DType::bf16;
  CheckGolden("stage2-recompute-bf16", TinyLlama(), recompute);

  recompute.recompute = RecomputeMode::activation;
  CheckGolden("stage2-activation-bf16", TinyLlama(), recompute);

  PlanOptions gpu = Options(2);
  gpu.compute = DType::bf16;
  gpu.device = DeviceKind::cuda;
  gpu.micro_batches = 1;
  CheckGolden("stage2-fp8-gpu", TinyLlama(), gpu, true);

  PlanOptions tight = Options(3);  // two segments' parameters at a time, none kept for the backward
  tight.max_live_parameters = 60'000;
  tight.micro_batches = 1;
  CheckGolden("stage3-tight", TinyGpt(), tight);

  PlanOptions host = Options(2);  // ZeRO-Offload: the optimizer on the host, a bucket as soon as it is reduced
  host.compute = DType::bf16;
  host.micro_batches = 1;
  host.placement.optimizer = host.placement.gradients = Tier::host;
  host.placement.steps_early = true;
  CheckGolden("stage2-host", TinyGpt(), host);

  host.placement.steps_early = false;  // with clipping: beside the next step's forward; and what finishes a step
  CheckGolden("stage2-host-clipping", TinyGpt(), host);
  CheckGolden("stage2-host-updates", TinyGpt(), UpdatesOnly(host));

  PlanOptions files = Options(3);  // ZeRO-Infinity: everything in files, the optimizer in the next step
  files.compute = DType::bf16;
  files.micro_batches = 1;
  files.placement = {Tier::file, Tier::file, Tier::file, Tier::file, 1, false};
  CheckGolden("stage3-files", TinyGpt(), files);

  PlanOptions forward = Options(3);
  forward.training = false;
  forward.micro_batches = 1;
  CheckGolden("stage3-forward", TinyGpt(), forward);
}

}  // namespace
}  // namespace ds
