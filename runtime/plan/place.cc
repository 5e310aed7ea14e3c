#include "runtime/plan/place.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>

#include "runtime/base/json.h"
#include "runtime/job/names.h"
#include "runtime/job/offload.h"

namespace ds {
namespace {

constexpr double kDeviceMargin = 0.05, kHostMargin = 0.10;  // of what the node has
constexpr double kAsLong = 1.05;                            // predictions that tell no difference
constexpr int kRatioSteps = 16;

/// Something that is kept somewhere, from the fastest place to the slowest.
struct Kind {
  const char* key;
  OffloadTarget& (*of)(JobSpec& spec);
};
const std::array<Kind, 3> kKinds = {{
    {"deepspeed.zero_optimization.offload_optimizer.device",
     [](JobSpec& spec) -> OffloadTarget& { return spec.zero.offload_optimizer; }},
    {"deepspeed.zero_optimization.offload_param.device",
     [](JobSpec& spec) -> OffloadTarget& { return spec.zero.offload_param; }},
    {"memory.offload_activations", [](JobSpec& spec) -> OffloadTarget& { return spec.memory.offload_activations; }},
}};

std::string Seconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, seconds < 1 ? "%.3g ms" : "%.3g s", seconds < 1 ? seconds * 1e3 : seconds);
  return text;
}

class Chooser {
 public:
  Chooser(const JobSpec& spec, int ranks, DeviceKind device, const TierRoom& room, const Machine& machine)
      : open_(spec), ranks_(ranks), device_(device), machine_(machine), layout_(LayoutOf(spec, ranks)) {
    const double margin = device == DeviceKind::cuda ? kDeviceMargin : kHostMargin;
    room_.device = static_cast<int64_t>(static_cast<double>(room.device) * (1 - margin));
    room_.host = static_cast<int64_t>(static_cast<double>(room.host) * (1 - kHostMargin));
    files_ = !spec.memory.nvme_path.empty();
  }

  PlacedJob Run() {
    Try(0, open_);
    TakeBest();
    if (!best_ && open_.zero.stage == 3) {
      // Gathers as late as can be, of what is needed at once.
      open_.zero.prefetch_bucket_size = open_.zero.max_live_parameters = open_.zero.max_reuse_distance = 0;
      tight_ = true;
      Try(0, open_);
      TakeBest();
    }
    if (!best_) return {Lowest(), {"nothing that was left to choose makes the job fit"}};
    ChooseRatio();
    PlacedJob placed{best_->spec, {}};
    for (const Kind& kind : kKinds) {
      JobSpec open = open_;
      if (kind.of(open) == OffloadTarget::automatic) placed.why.push_back(WhyTarget(kind));
    }
    if (open_.zero.offload_ratio_auto && best_->spec.zero.offload_optimizer != OffloadTarget::none)
      placed.why.push_back(WhyRatio());
    if (tight_)
      placed.why.push_back(
          "deepspeed.zero_optimization.stage3_prefetch_bucket_size, stage3_max_live_parameters and "
          "stage3_max_reuse_distance are 0: with the job's own nothing fits");
    return placed;
  }

 private:
  struct Candidate {
    JobSpec spec;
    Price price;
    std::string excess;  ///< empty: it fits
    int64_t below() const {
      return price.resident_bytes[static_cast<int>(Tier::host)] + price.arena_bytes[static_cast<int>(Tier::host)] +
             2 * price.resident_bytes[static_cast<int>(Tier::file)];
    }
  };

  Candidate Plan(const JobSpec& spec) const {
    Candidate candidate{spec, {}, {}};
    for (const ds::Plan& plan : BuildStagePlans(layout_, PlanOptionsOf(spec, 0, ranks_, device_, machine_), machine_)) {
      if (plan.options.pipeline.stage == 0) candidate.price = plan.price;
      for (int tier = 0; tier < kTiers; ++tier) {  // of the stage that needs most
        candidate.price.resident_bytes[tier] =
            std::max(candidate.price.resident_bytes[tier], plan.price.resident_bytes[tier]);
        candidate.price.arena_bytes[tier] = std::max(candidate.price.arena_bytes[tier], plan.price.arena_bytes[tier]);
      }
      if (candidate.excess.empty()) candidate.excess = Excess(spec, plan, room_);
    }
    return candidate;
  }

  void Consider(const JobSpec& spec) {
    Candidate candidate = Plan(spec);
    if (candidate.excess.empty()) fitting_.push_back(std::move(candidate));
  }

  /// Of those that fit, and take no longer than the fastest as far as predictions go: the one that moves least.
  void TakeBest() {
    if (fitting_.empty()) return;
    double least = fitting_.front().price.step_seconds;
    for (const Candidate& candidate : fitting_) least = std::min(least, candidate.price.step_seconds);
    const Candidate* best = nullptr;
    for (const Candidate& candidate : fitting_) {
      if (candidate.price.step_seconds > least * kAsLong) continue;
      if (!best || candidate.below() < best->below() ||
          (candidate.below() == best->below() && candidate.price.step_seconds < best->price.step_seconds))
        best = &candidate;
    }
    best_ = *best;
  }

  /// A CPU has one memory for both tiers, unless the job tells them apart.
  bool HostIsApart() const { return device_ == DeviceKind::cuda || open_.memory.device_limit; }

  /// Every combination of places, for the kinds from `kind` on.
  void Try(size_t kind, JobSpec spec) {
    if (kind < kKinds.size()) {
      OffloadTarget& target = kKinds[kind].of(spec);
      if (target != OffloadTarget::automatic) return Try(kind + 1, spec);
      for (OffloadTarget place : {OffloadTarget::none, OffloadTarget::cpu, OffloadTarget::nvme}) {
        if (place == OffloadTarget::nvme && !files_) continue;
        if (place == OffloadTarget::cpu && !HostIsApart()) continue;
        target = place;
        Try(kind + 1, spec);
      }
      return;
    }
    const bool part = open_.zero.offload_ratio_auto && spec.zero.offload_optimizer != OffloadTarget::none;
    spec.zero.offload_ratio_auto = false;
    if (!part) return Consider(spec);
    for (int quarter = 4; quarter > 0; --quarter) {
      spec.zero.offload_ratio = quarter / 4.0;
      Consider(spec);
    }
  }

  void ChooseRatio() {
    if (!open_.zero.offload_ratio_auto || best_->spec.zero.offload_optimizer == OffloadTarget::none) return;
    JobSpec spec = best_->spec;
    spec.zero.offload_ratio = 1;
    whole_ = Plan(spec);
    for (int part = kRatioSteps; part > 0; --part) {
      spec.zero.offload_ratio = static_cast<double>(part) / kRatioSteps;
      Consider(spec);
    }
    TakeBest();
  }

  /// As far down as the job allows.
  JobSpec Lowest() const {
    JobSpec spec = open_;
    for (const Kind& kind : kKinds)
      if (kind.of(spec) == OffloadTarget::automatic) kind.of(spec) = files_ ? OffloadTarget::nvme : OffloadTarget::cpu;
    if (spec.zero.offload_ratio_auto) spec.zero.offload_ratio = 1;
    spec.zero.offload_ratio_auto = false;
    return spec;
  }

  /// What speaks against the next faster place, where all else is as it was chosen.
  std::string WhyTarget(const Kind& kind) const {
    JobSpec spec = best_->spec;
    const OffloadTarget chosen = kind.of(spec);
    std::string text = std::string(kind.key) + ": auto is " + NameOf(chosen, kOffloadNames) + ": ";
    if (chosen == OffloadTarget::none) return text + "it fits on the device";
    const OffloadTarget faster =
        chosen == OffloadTarget::nvme && HostIsApart() ? OffloadTarget::cpu : OffloadTarget::none;
    kind.of(spec) = faster;
    const Candidate other = Plan(spec);
    text += "with " + NameOf(faster, kOffloadNames);
    if (!other.excess.empty()) return text + " " + other.excess + Margin(other.excess);
    return text + " a step is predicted to take " + Seconds(other.price.step_seconds) + ", not " +
           Seconds(best_->price.step_seconds);
  }

  /// What a node has is told less what is left of it.
  static std::string Margin(const std::string& excess) {
    const bool gpu = excess.find("free memory of its GPU") != std::string::npos;
    if (!gpu && excess.find("that the node has") == std::string::npos) return "";
    return std::string(" less a margin of ") + (gpu ? "5%" : "10%");
  }

  std::string WhyRatio() const {
    return "deepspeed.zero_optimization.offload_optimizer.ratio: auto is " +
           JsonNumber(best_->spec.zero.offload_ratio) + ": a step is predicted to take " +
           Seconds(best_->price.step_seconds) + "; with 1 " +
           (whole_->excess.empty() ? Seconds(whole_->price.step_seconds) : whole_->excess);
  }

  JobSpec open_;
  const int ranks_;
  const DeviceKind device_;
  const Machine& machine_;
  const ModelLayout layout_;
  TierRoom room_;
  bool files_ = false, tight_ = false;
  std::vector<Candidate> fitting_;
  std::optional<Candidate> best_, whole_;
};

}  // namespace

PlacedJob ChoosePlacement(const JobSpec& spec, int ranks, DeviceKind device, const TierRoom& room,
                          const Machine& machine) {
  if (!LeavesPlacementOpen(spec)) return {spec, {}};
  return Chooser(spec, ranks, device, room, machine).Run();
}

}  // namespace ds
