#include "runtime/job/check_parallel.h"

#include <algorithm>
#include <string>

namespace ds {
namespace {

constexpr const char *kPipeline = "parallel.pipeline", *kSchedule = "parallel.schedule",
                     *kVirtual = "parallel.virtual_stages", *kPartition = "parallel.partition";

std::string Text(int64_t value) { return std::to_string(value); }

void CheckUnused(const ParallelConfig& parallel, Problems& problems) {
  const auto unused = [&](const char* key, bool written, const char* fallback) {
    if (written && problems.Good({key, kPipeline}))
      problems.Add(key, std::string("there is no pipeline: parallel.pipeline is 1; write ") + fallback +
                            ", or 2 or more stages");
  };
  unused(kSchedule, parallel.schedule != ScheduleKind::one_f_one_b, "1f1b");
  unused(kVirtual, parallel.virtual_stages != 1, "1");
  unused(kPartition, parallel.partition != "time", "time");
}

void ResolveVirtualStages(ParallelConfig& parallel, Problems& problems) {
  if (!problems.Good({kSchedule, kVirtual})) return;
  int64_t& chunks = parallel.virtual_stages;
  switch (parallel.schedule) {
    case ScheduleKind::interleaved:
      if (chunks < 2)
        problems.Add(kVirtual, "interleaved takes turns between pieces of a stage; write 2 or more, or schedule 1f1b");
      return;
    case ScheduleKind::zb_v:
      if (chunks > 2) problems.Add(kVirtual, "zb-v has two pieces a stage; write 2");
      chunks = 2;
      return;
    default:
      if (chunks != 1)
        problems.Add(kVirtual,
                     "only interleaved and zb-v have more than one piece a stage; write 1, or schedule interleaved");
  }
}

/// The numbers of stages, at most `most`, next to `wanted` below and above, into which `ranks` divide.
std::string Nearest(int64_t wanted, int64_t ranks, int64_t most) {
  int64_t below = 0, above = 0;
  for (int64_t n = 1; n <= std::min(ranks, most); ++n) {
    if (ranks % n != 0) continue;
    if (n < wanted) below = n;
    if (n > wanted && above == 0) above = n;
  }
  return above == 0 ? Text(below) : below == 0 ? Text(above) : Text(below) + " or " + Text(above);
}

void CheckStages(int64_t ranks, const JobSpec& spec, Problems& problems) {
  const ParallelConfig& parallel = spec.parallel;
  const bool known = spec.model.layers > 0 && problems.Good({"model", "model.layers", "model.preset"});
  const int64_t segments = 2 * spec.model.layers + 2;
  const int64_t most = known ? segments / parallel.virtual_stages : parallel.pipeline;
  if (parallel.pipeline > most)
    return problems.Add(
        kPipeline, Text(parallel.pipeline) + " stages" +
                       (parallel.virtual_stages > 1 ? " of " + Text(parallel.virtual_stages) + " pieces" : "") +
                       " cannot be cut from a model of " + Text(spec.model.layers) + " layers, which has " +
                       Text(segments) + " segments (the embedding, attention and MLP of each layer, the head); write " +
                       (most < 1 ? "fewer parallel.virtual_stages"
                        : parallel.virtual_stages > 1
                            ? Nearest(parallel.pipeline, ranks, most) + ", or fewer parallel.virtual_stages"
                            : Nearest(parallel.pipeline, ranks, most)));
  if (ranks % parallel.pipeline != 0)
    problems.Add(kPipeline, "does not divide the " + Text(ranks) + " ranks of the job; write " +
                                Nearest(parallel.pipeline, ranks, known ? most : ranks));
}

}  // namespace

void ResolveParallel(int64_t ranks, JobSpec& spec, Problems& problems) {
  if (!problems.Good({"parallel", kPipeline})) return;
  if (spec.parallel.pipeline == 1) return CheckUnused(spec.parallel, problems);
  ResolveVirtualStages(spec.parallel, problems);
  if (problems.Good({kSchedule, kVirtual})) CheckStages(ranks, spec, problems);
}

}  // namespace ds
