// docs/offload.md's arithmetic: what a job's plan moves between the tiers, in bytes a step and parameter of the rank.
#include <map>

#include "runtime/plan/planner.h"
#include "test/catch.h"
#include "test/unit/job/spec_helpers.h"

namespace ds {
namespace {

struct Moved {
  double store = 0, fetch = 0, write = 0, read = 0;
  bool operator==(const Moved&) const = default;
};

/// Bytes that rank 0 of two moves in a step of bf16 and Adam, a parameter that it owns. Every unit is gathered anew for
/// each use.
Moved BytesAParameter(const std::string& zero, double micro_batches, double clipping) {
  const JobSpec spec = Parse(TinyJob("deepspeed: {train_micro_batch_size_per_gpu: 1, gradient_accumulation_steps: " +
                                     std::to_string(micro_batches) +
                                     ", bf16: {enabled: true}, gradient_clipping: " + std::to_string(clipping) +
                                     ", zero_optimization: {stage3_param_persistence_threshold: 0, "
                                     "stage3_max_live_parameters: 1, stage3_max_reuse_distance: 0, " +
                                     zero + "}}\nmemory: {nvme_path: /a}\n"),
                             {{"model.tied_head", "false"}, {"model.layers", "4"}});
  const ModelLayout layout = LayoutOf(spec, 2);
  const Plan plan = BuildPlan(layout, PlanOptionsOf(spec, 0, 2, DeviceKind::cpu));
  std::map<StreamKind, int64_t> bytes;
  for (const Action& action : plan.actions) {
    if (action.kind == ActionKind::fetch || action.kind == ActionKind::store) bytes[action.stream] += action.bytes;
  }
  int64_t owned = 0;
  for (int unit = 0; unit < static_cast<int>(layout.units.size()); ++unit) owned += layout.ShardNumel(unit);
  const auto each = [&](StreamKind stream) { return static_cast<double>(bytes[stream]) / static_cast<double>(owned); };
  return {each(StreamKind::store), each(StreamKind::fetch), each(StreamKind::write), each(StreamKind::read)};
}

TEST_CASE("an offloaded optimizer moves what docs/offload.md says") {
  for (const double a : {1.0, 2.0, 3.0}) {
    for (const double clipping : {0.0, 1.0}) {
      const double again = clipping > 0 ? 4 : 0;  // the gradient, once its norm is known
      CAPTURE(a, clipping);
      for (const char* stage : {"2", "3"}) {
        CAPTURE(stage);
        const std::string zero = std::string("stage: ") + stage + ", offload_optimizer: {device: ";
        CHECK(BytesAParameter(zero + "cpu}", a, clipping) == Moved{4 * a, 4 * (a - 1) + 2, 0, 0});
        CHECK(BytesAParameter(zero + "nvme}", a, clipping) ==
              Moved{4 * a, 4 * (a - 1) + 2, 4 * a + 12, 4 * (a - 1) + 12 + again});
      }
      CHECK(BytesAParameter("stage: 1, offload_optimizer: {device: cpu}", a, clipping) == Moved{4 + again, 2, 0, 0});
      CHECK(BytesAParameter("stage: 1, offload_optimizer: {device: nvme}", a, clipping) == Moved{4 + again, 2, 12, 12});
      CHECK(BytesAParameter("stage: 2", a, clipping) == Moved{});
    }
  }
}

TEST_CASE("a share of the optimizer moves no more than its share") {
  const Moved all = BytesAParameter("stage: 1, offload_optimizer: {device: cpu, ratio: 1}", 1, 0);
  CHECK(all == Moved{4, 2, 0, 0});
  CHECK(BytesAParameter("stage: 1, offload_optimizer: {device: cpu, ratio: 0}", 1, 0) == Moved{});
}

TEST_CASE("what is stepped goes to where parameters are kept") {
  const Moved host = BytesAParameter("stage: 3, offload_optimizer: {device: cpu}, offload_param: {device: cpu}", 1, 0);
  CHECK(host.store == 4);  // gradients alone
  const std::string zero = "stage: 3, offload_optimizer: {device: nvme}, offload_param: {device: nvme}";
  CHECK(BytesAParameter(zero, 1, 0).write == 4 + 12 + 2);
  CHECK(BytesAParameter("stage: 3, offload_param: {device: cpu}", 1, 0).store == 2);
  CHECK(BytesAParameter("stage: 3, offload_param: {device: nvme}", 1, 0).write == 2);
}

}  // namespace
}  // namespace ds
