#include "launcher/nodes/preflight_needs.h"

#include <algorithm>

#include "runtime/model/segment_spec.h"
#include "runtime/plan/planner.h"

namespace ds {

int64_t CheckpointBytes(const JobSpec& spec) {
  int64_t elements = 0;
  for (const SegmentSpec& segment : BuildSegments(spec.model, DType::f32, {1, spec.data.sequence_length})) {
    for (const ParamSpec& param : segment.params) elements += param.shape.numel();
  }
  return elements * 4 * (1 + MomentCount(spec.optimizer));
}

int64_t CheckpointsAtATime(const JobSpec& spec) {
  const int64_t every = spec.checkpoint.every;
  if (every < 0) return 0;
  if (every == 0) return 1;
  const int64_t written = (spec.training.steps + every - 1) / every;  // the last step's always
  if (spec.checkpoint.keep <= 0) return std::max<int64_t>(1, written);
  // An old one is removed when its successor is complete.
  return std::max<int64_t>(1, std::min(written, spec.checkpoint.keep + 1));
}

PreflightNeeds NeedsOf(const Job& job, const std::string& run_directory) {
  PreflightNeeds needs;
  needs.foreign = job.foreign();
  needs.shared_output = !job.foreign() && job.spec.checkpoint.every >= 0;
  needs.one_device_kind = !job.foreign();
  needs.device = job.spec.training.device;
  needs.output = run_directory;
  needs.world = job.world();
  needs.skip = job.spec.launch.skip_checks;
  if (job.foreign()) return needs;
  needs.checkpoint_bytes = CheckpointBytes(job.spec);
  needs.checkpoints = CheckpointsAtATime(job.spec);
  needs.checkpoint_keep = job.spec.checkpoint.keep;
  return needs;
}

std::string LauncherFilesTrouble(int ranks, size_t nodes, uint64_t limit) {
  constexpr uint64_t kOwn = 64, kPerAgent = 8;
  const uint64_t wanted = kOwn + static_cast<uint64_t>(ranks) + kPerAgent * nodes;
  if (limit >= wanted) return "";
  return "ds-launch may open " + std::to_string(limit) + " files (hard limit), and " + std::to_string(ranks) +
         " ranks on " + std::to_string(nodes) + " nodes need " + std::to_string(wanted) +
         ": raise it (ulimit -Hn, limits.conf)";
}

}  // namespace ds
