// Promise: what a job leaves to the planner is kept on the fastest place where it fits, and the choice is explained.
#include "runtime/plan/place.h"

#include "runtime/job/offload.h"
#include "test/catch.h"
#include "test/plan/models.h"

namespace ds {
namespace {
using namespace test;

constexpr OffloadTarget kNone = OffloadTarget::none, kCpu = OffloadTarget::cpu, kNvme = OffloadTarget::nvme,
                        kAuto = OffloadTarget::automatic;
constexpr DeviceKind kGpu = DeviceKind::cuda;

/// A job whose states weigh more than what else it needs: 3.3 million parameters.
JobSpec Job() {
  JobSpec spec;
  spec.model = TinyGpt(16);
  spec.model.hidden = 128;
  spec.model.ffn = 512;
  spec.precision = Precision::bf16;
  spec.data.sequence_length = 32;
  spec.batch = {1, 1, 1};
  spec.zero.stage = 3;
  spec.zero.param_persistence_threshold = 1000;
  spec.zero.offload_optimizer = spec.zero.offload_param = spec.memory.offload_activations = kAuto;
  spec.memory.nvme_path = {"/scratch"};
  return spec;
}

Price PriceOf(const JobSpec& spec, DeviceKind device = kGpu) {
  return BuildPlan(LayoutOf(spec, 1), PlanOptionsOf(spec, 0, 1, device)).price;
}

/// The job with these places.
JobSpec With(JobSpec spec, OffloadTarget optimizer, OffloadTarget param, OffloadTarget activations, double ratio = 1) {
  spec.zero.offload_optimizer = optimizer;
  spec.zero.offload_param = param;
  spec.memory.offload_activations = activations;
  spec.zero.offload_ratio = ratio;
  return spec;
}

PlacedJob Placed(const JobSpec& spec, const TierRoom& room = {}, DeviceKind device = kGpu) {
  PlacedJob placed = ChoosePlacement(spec, 1, device, room, DefaultMachine(device));
  CHECK_FALSE(LeavesPlacementOpen(placed.spec));
  return placed;
}

std::string Why(const PlacedJob& placed) {
  std::string text;
  for (const std::string& line : placed.why) text += line + "\n";
  return text;
}

bool Has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_CASE("a job that leaves nothing open comes back as it is") {
  const JobSpec spec = With(Job(), kCpu, kNvme, kNone);
  const PlacedJob placed = Placed(spec, TierRoom(1, 1));
  CHECK(placed.spec == spec);
  CHECK(placed.why.empty());
}

TEST_CASE("what fits on the device stays there") {
  const PlacedJob placed = Placed(Job());
  CHECK(placed.spec == With(Job(), kNone, kNone, kNone));
  REQUIRE(placed.why.size() == 3);
  for (const std::string& why : placed.why) CHECK(Has(why, "auto is none: it fits on the device"));
}

TEST_CASE("the fastest of what fits is taken: no other combination that fits is predicted to be faster") {
  const Price all = PriceOf(With(Job(), kNone, kNone, kNone));
  const int64_t least = PriceOf(With(Job(), kNvme, kNvme, kNvme)).peak_bytes[0];
  REQUIRE(least < all.peak_bytes[0]);
  bool below = false, files = false;
  for (int part = 0; part < 4; ++part) {
    for (int64_t host : {int64_t{1} << 40, all.resident_bytes[0] / 2, all.resident_bytes[0] / 8}) {
      JobSpec spec = Job();
      spec.memory.device_limit = least + (all.peak_bytes[0] - least) * part / 4;
      spec.memory.host_limit = host;
      const PlacedJob placed = Placed(spec);
      CAPTURE(part, host, Why(placed));
      const Price price = PriceOf(placed.spec);
      CHECK(price.peak_bytes[0] <= *spec.memory.device_limit);
      CHECK(price.peak_bytes[1] <= host);
      for (OffloadTarget optimizer : {kNone, kCpu, kNvme})
        for (OffloadTarget param : {kNone, kCpu, kNvme})
          for (OffloadTarget activations : {kNone, kCpu, kNvme}) {
            const Price other = PriceOf(With(spec, optimizer, param, activations));
            if (other.peak_bytes[0] <= *spec.memory.device_limit && other.peak_bytes[1] <= host)
              CHECK(price.step_seconds <= other.step_seconds * 1.051);
          }
      below = below || placed.spec.zero.offload_optimizer == kCpu;
      files = files || placed.spec.zero.offload_optimizer == kNvme;
      CHECK(placed.why.size() == 3);
    }
  }
  CHECK(below);
  CHECK(files);
}

TEST_CASE("why a place was not taken is told with the numbers") {
  JobSpec spec = Job();
  spec.zero.offload_param = spec.memory.offload_activations = kNone;
  const Price device = PriceOf(With(spec, kNone, kNone, kNone)), host = PriceOf(With(spec, kCpu, kNone, kNone));
  spec.memory.device_limit = host.peak_bytes[0];
  PlacedJob placed = Placed(spec);
  CHECK(placed.spec == With(spec, kCpu, kNone, kNone));
  CHECK(Why(placed) == "deepspeed.zero_optimization.offload_optimizer.device: auto is cpu: with none a rank needs " +
                           FormatBytes(device.peak_bytes[0]) + " of its GPU's memory, and memory.device_limit is " +
                           FormatBytes(host.peak_bytes[0]) + "\n");
  spec.memory.host_limit = host.peak_bytes[1] - 1;
  placed = Placed(spec);
  CHECK(placed.spec == With(spec, kNvme, kNone, kNone));
  CHECK(Has(Why(placed), "auto is nvme: with cpu a rank needs "));
  CHECK(Has(Why(placed), "of host memory, and memory.host_limit is " + FormatBytes(host.peak_bytes[1] - 1)));
}

TEST_CASE("what the node has is taken but for a margin") {
  JobSpec spec = Job();
  spec.zero.offload_param = spec.memory.offload_activations = kNone;
  const int64_t all = PriceOf(With(spec, kNone, kNone, kNone)).peak_bytes[0];
  CHECK(Placed(spec, TierRoom(all * 100 / 94)).spec.zero.offload_optimizer == kNone);
  const PlacedJob placed = Placed(spec, TierRoom(all * 100 / 96));
  CHECK(placed.spec.zero.offload_optimizer == kCpu);
  CHECK(Has(Why(placed), " less a margin of 5%"));
  const int64_t host = PriceOf(With(spec, kCpu, kNone, kNone)).peak_bytes[1];
  CHECK(Placed(spec, TierRoom(all, host * 100 / 89)).spec.zero.offload_optimizer == kCpu);
  CHECK(Placed(spec, TierRoom(all, host * 100 / 91)).spec.zero.offload_optimizer == kNvme);
}

TEST_CASE("without folders there are no files; where nothing fits the lowest places are refused with their numbers") {
  JobSpec spec = Job();
  spec.memory.nvme_path.clear();
  spec.memory.device_limit = 1000;
  const PlacedJob placed = Placed(spec);
  JobSpec lowest = With(spec, kCpu, kCpu, kCpu);
  lowest.zero.prefetch_bucket_size = lowest.zero.max_live_parameters = lowest.zero.max_reuse_distance = 0;
  CHECK(placed.spec == lowest);
  CHECK(Has(Why(placed), "nothing that was left to choose makes the job fit"));
}

TEST_CASE("gathers ahead are given up where the job fits without them alone") {
  JobSpec spec = Job(), tight = With(spec, kNvme, kNvme, kNvme);
  tight.zero.prefetch_bucket_size = tight.zero.max_live_parameters = tight.zero.max_reuse_distance = 0;
  spec.memory.device_limit = PriceOf(tight).peak_bytes[0];
  REQUIRE(PriceOf(With(spec, kNvme, kNvme, kNvme)).peak_bytes[0] > *spec.memory.device_limit);
  const PlacedJob placed = Placed(spec);
  CHECK(PriceOf(placed.spec).peak_bytes[0] <= *spec.memory.device_limit);
  CHECK(placed.spec.zero.max_live_parameters == 0);
  CHECK(Has(Why(placed), "stage3_max_reuse_distance are 0: with the job's own nothing fits"));
}

TEST_CASE("the share of the optimizer's state that goes to the host is the one of the shortest step") {
  JobSpec spec = With(Job(), kCpu, kNone, kNone);
  spec.zero.offload_ratio_auto = true;
  const Price whole = PriceOf(With(spec, kCpu, kNone, kNone, 1)), half = PriceOf(With(spec, kCpu, kNone, kNone, 0.5));
  REQUIRE(half.step_seconds < whole.step_seconds);
  for (int64_t limit : {half.peak_bytes[0], whole.peak_bytes[0]}) {
    spec.memory.device_limit = limit;
    const PlacedJob placed = Placed(spec);
    CAPTURE(limit, Why(placed));
    const Price price = PriceOf(placed.spec);
    CHECK(price.peak_bytes[0] <= limit);
    for (int part = 1; part <= 16; ++part) {
      const Price other = PriceOf(With(spec, kCpu, kNone, kNone, part / 16.0));
      if (other.peak_bytes[0] <= limit) CHECK(price.step_seconds <= other.step_seconds * 1.051);
    }
    CHECK(Has(Why(placed), "offload_optimizer.ratio: auto is "));
    CHECK((placed.spec.zero.offload_ratio < 1) == (limit == half.peak_bytes[0]));
  }
  spec.memory.device_limit.reset();
  spec.memory.host_limit = half.peak_bytes[1];
  CHECK(Has(Why(Placed(spec)), "; with 1 a rank needs " + FormatBytes(whole.peak_bytes[1]) + " of host memory"));
}

TEST_CASE("a CPU that stands for a device has both tiers in one memory") {
  JobSpec spec = Job();
  spec.zero.offload_param = spec.memory.offload_activations = kNone;
  const Price all = PriceOf(With(spec, kNone, kNone, kNone), DeviceKind::cpu);
  CHECK(Placed(spec, TierRoom(all.peak_bytes[0] * 2), DeviceKind::cpu).spec.zero.offload_optimizer == kNone);
  // The host has no memory of its own to give: files alone help, unless the job tells the tiers apart.
  CHECK(Placed(spec, TierRoom(all.peak_bytes[0]), DeviceKind::cpu).spec.zero.offload_optimizer == kNvme);
}

}  // namespace
}  // namespace ds
