// What a pipeline as a whole comes to, as text.
#include <algorithm>
#include <cstdio>

#include "runtime/job/names.h"
#include "runtime/plan/passes.h"
#include "runtime/plan/planner.h"
#include "runtime/plan/price.h"
#include "runtime/plan/stages.h"
#include "runtime/plan/table.h"

namespace ds {
namespace {

std::string Percent(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f%%", share * 100);
  return text;
}

/// Predicted seconds of each chunk's work over one micro-batch.
std::vector<WorkCost> CostsOf(const ModelLayout& layout, const std::vector<Plan>& stages, const Machine& machine) {
  const std::vector<Chunk> chunks = ChunksOf(layout, stages.front().options.pipeline);
  std::vector<int> chunk_of(layout.segments.size(), 0);
  for (size_t c = 0; c < chunks.size(); ++c)
    for (int s = chunks[c].begin; s < chunks[c].end; ++s) chunk_of[s] = static_cast<int>(c);
  std::vector<WorkCost> costs(chunks.size(), WorkCost{0, 0, 0});
  for (const Plan& plan : stages) {
    for (const Action& action : plan.actions) {
      if (action.kind > ActionKind::backward_weight || action.micro_batch != 0) continue;
      WorkCost& cost = costs[static_cast<size_t>(chunk_of[action.segment])];
      (action.kind == ActionKind::forward           ? cost.forward
       : action.kind == ActionKind::backward_weight ? cost.backward_weight
                                                    : cost.backward_input) +=
          ActionSeconds(layout, plan, action, machine);
    }
  }
  return costs;
}

std::string SegmentsOf(const ModelLayout& layout, const PlanOptions& options) {
  std::string text;
  const ScheduleShape shape = ShapeOf(options);
  const std::vector<Chunk> chunks = ChunksOf(layout, options.pipeline);
  for (size_t c = 0; c < chunks.size(); ++c) {
    if (shape.StageOf(static_cast<int>(c)) != options.pipeline.stage) continue;
    text += (text.empty() ? "" : ", ") + layout.segments[chunks[c].begin].name;
    if (chunks[c].end - chunks[c].begin > 1) text += " to " + layout.segments[chunks[c].end - 1].name;
  }
  return text;
}

int64_t ParametersOf(const ModelLayout& layout, const PlanOptions& options) {
  const std::vector<bool> here = PartsOf(layout, options).units;
  int64_t count = 0;
  for (size_t u = 0; u < layout.units.size(); ++u)
    for (const FlatParam& param : layout.units[u].params) count += here[u] ? param.numel() : 0;
  return count;
}

std::string RanksOf(const PlanOptions& options) {
  const int first = options.pipeline.stage * options.ranks;
  return std::to_string(first) + (options.ranks > 1 ? "-" + std::to_string(first + options.ranks - 1) : "");
}

}  // namespace

std::string PipelineText(const ModelLayout& layout, const std::vector<Plan>& stages, const Machine& machine) {
  const PlanOptions& options = stages.front().options;
  const double step = stages.front().price.step_seconds;
  std::string text = "pipeline of " + std::to_string(stages.size()) + " stages, " +
                     NameOf(options.pipeline.schedule, kScheduleNames) + ", " + std::to_string(options.micro_batches) +
                     (options.micro_batches == 1 ? " micro-batch\n" : " micro-batches\n");
  Table table({"stage", "ranks", "parameters", "device peak", "compute", "not computing", "segments"});
  double idle = 0, moved = 0, seconds = 0;
  for (const Plan& plan : stages) {
    const double share = step > 0 ? 1 - plan.price.compute_seconds / step : 0;
    idle += share / static_cast<double>(stages.size());
    table.Add({std::to_string(plan.options.pipeline.stage), RanksOf(plan.options),
               std::to_string(ParametersOf(layout, plan.options)), FormatBytes(plan.price.peak_bytes[0]),
               FormatMillis(plan.price.compute_seconds), Percent(share), SegmentsOf(layout, plan.options)});
    for (const Action& action : plan.actions) {
      if (action.kind != ActionKind::send || action.state != StateKind::none) continue;
      moved = std::max(moved, static_cast<double>(action.bytes));
      seconds = std::max(seconds, ActionSeconds(layout, plan, action, machine));
    }
  }
  const ScheduleShape shape = ShapeOf(options);
  const SimulatedSchedule schedule = Simulate(shape, OrderWork(shape), CostsOf(layout, stages, machine));
  text += table.str();
  text += "predicted step: " + FormatMillis(step) + "; stages do not compute for " + Percent(idle) +
          " of it. The schedule's own bubble, with these stages and nothing else to wait for, is " +
          Percent(schedule.IdleShare()) + "\n";
  text += "a message between stages: " + FormatBytes(static_cast<int64_t>(moved)) + ", " + FormatMillis(seconds) + "\n";
  return text;
}

}  // namespace ds
