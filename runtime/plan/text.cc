// The text form of a plan: golden tests, --dry-run and people read it.
#include <algorithm>
#include <cstdio>

#include "runtime/job/names.h"
#include "runtime/plan/lifetime.h"
#include "runtime/plan/passes.h"
#include "runtime/plan/planner.h"
#include "runtime/plan/price.h"
#include "runtime/plan/stages.h"
#include "runtime/plan/table.h"

namespace ds {
namespace {

/// ", stage 1 of 4 (1f1b)"; with the segments of its chunks.
std::string Stage(const ModelLayout& layout, const PlanOptions& options) {
  const PipelinePlace& pipeline = options.pipeline;
  if (pipeline.stages == 1) return "";
  std::string text = "stage " + std::to_string(pipeline.stage) + " of " + std::to_string(pipeline.stages) + " (" +
                     NameOf(pipeline.schedule, kScheduleNames) + "):";
  const ScheduleShape shape = ShapeOf(options);
  const std::vector<Chunk> chunks = ChunksOf(layout, pipeline);
  const char* separator = " ";
  for (size_t c = 0; c < chunks.size(); ++c) {
    if (shape.StageOf(static_cast<int>(c)) != pipeline.stage) continue;
    text += separator + layout.segments[chunks[c].begin].name;
    if (chunks[c].end - chunks[c].begin > 1) text += " to " + layout.segments[chunks[c].end - 1].name;
    separator = ", ";
  }
  return text + "\n";
}

/// What is kept below the device, and where.
std::string Placed(const PlanOptions& options) {
  const Placement& placement = options.placement;
  std::string text;
  for (const auto& [what, tier] :
       {std::pair{"optimizer", placement.optimizer}, std::pair{"gradients", placement.gradients},
        std::pair{"parameters", placement.parameters}, std::pair{"activations", placement.activations}})
    if (tier != Tier::device) text += std::string(", ") + what + " on the " + NameOf(tier);
  if (DefersUpdates(options)) text += ", the host steps beside the next forward";
  return text;
}

/// What the host and files hold; nothing where they hold none of the step.
std::string LowerTiers(const Plan& plan) {
  std::string text;
  for (Tier tier : {Tier::host, Tier::file}) {
    const int t = static_cast<int>(tier);
    const int64_t resident = plan.price.resident_bytes[t], arena = plan.price.arena_bytes[t];
    if (resident + arena > 0)
      text += std::string(NameOf(tier)) + ": " + std::to_string(resident) + " bytes resident + " +
              std::to_string(arena) + " arena (" + FormatBytes(resident + arena) + ")\n";
  }
  return text;
}

std::string Header(const ModelLayout& layout, const Plan& plan) {
  const PlanOptions& o = plan.options;
  std::string text = "plan of rank " + std::to_string(o.job_rank()) + " of " + std::to_string(o.world()) + ": ";
  text += std::string(!o.training      ? "forward only"
                      : o.updates_only ? "updates of the step before"
                                       : "training") +
          ", ZeRO stage ";
  text += std::to_string(o.stage) + ", " + ds::NameOf(o.compute) + ", " + std::to_string(o.micro_batches) +
          (o.micro_batches == 1 ? " micro-batch" : " micro-batches") + ", recompute " +
          NameOf(o.recompute, kRecomputeNames) + (o.exact_sharding ? ", exact sharding" : "") + Placed(o) +
          (std::any_of(layout.segments.begin(), layout.segments.end(),
                       [](const SegmentSpec& segment) { return segment.reset_attention; })
               ? ", attention within documents"
               : "") +
          (std::any_of(layout.segments.begin(), layout.segments.end(),
                       [](const SegmentSpec& segment) {
                         return std::any_of(segment.products.begin(), segment.products.end(),
                                            [](const ProductSpec& product) { return IsFp8(product.key.ab); });
                       })
               ? ", 8-bit products"
               : "") +
          "\n";
  text += "model: " + std::to_string(layout.segments.size()) + " segments, " + std::to_string(layout.ParameterCount()) +
          " parameters in " + std::to_string(layout.units.size()) + " units\n" + Stage(layout, o);
  const int64_t libraries = plan.price.peak_bytes[0] - plan.price.resident_bytes[0] - plan.price.arena_bytes[0] -
                            plan.price.workspace_bytes - plan.price.executor_bytes;
  text += "device memory: " + std::to_string(plan.price.resident_bytes[0]) + " bytes resident + " +
          std::to_string(plan.price.arena_bytes[0]) + " arena + " +
          (o.device == DeviceKind::cuda ? std::to_string(plan.price.workspace_bytes) + " workspace + " +
                                              std::to_string(plan.price.executor_bytes) + " executors + "
                                        : "") +
          std::to_string(libraries) + " libraries = " + std::to_string(plan.price.peak_bytes[0]) + " at the peak (" +
          FormatBytes(plan.price.peak_bytes[0]) + ")\n";
  text += LowerTiers(plan);
  if (plan.price.snapshot_bytes > 0)
    text += "host memory: " + std::to_string(plan.price.snapshot_bytes) + " bytes that checkpoints are written from (" +
            FormatBytes(plan.price.snapshot_bytes) + ")\n";
  text += "predicted step: " + FormatMillis(plan.price.step_seconds) + ", of it compute " +
          FormatMillis(plan.price.compute_seconds) + ", exposed communication " +
          FormatMillis(plan.price.exposed_comm_seconds) + "\n";
  return text;
}

std::string Units(const ModelLayout& layout, const PlanOptions& options) {
  Table table({"unit", "parameters", "elements", "a rank", "buckets", ""});
  const std::vector<bool> here = PartsOf(layout, options).units;
  for (size_t u = 0; u < layout.units.size(); ++u) {
    const ParamUnit& unit = layout.units[u];
    if (!here[u]) continue;
    table.Add({unit.name, std::to_string(unit.params.size()), std::to_string(unit.numel),
               std::to_string(layout.ShardNumel(static_cast<int>(u))), std::to_string(unit.buckets.size()),
               unit.persistent ? "persistent" : ""});
  }
  return table.str();
}

std::string Resident(const Plan& plan) {
  Table table({"bytes", "part", "buffer"});
  for (const Buffer& buffer : plan.buffers) {
    if (buffer.kind != BufferKind::resident) continue;
    std::string name = buffer.name;
    if (buffer.tier != Tier::device) name += std::string(" on the ") + ds::NameOf(buffer.tier);
    if (buffer.alias_of >= 0) name += " (in " + plan.buffers[buffer.alias_of].name + ")";
    table.Add({std::to_string(buffer.bytes), buffer.whole ? "whole" : "shard", name});
  }
  return table.str();
}

std::string Arena(const Plan& plan) {
  const std::vector<Lifetime> lifetimes = Lifetimes(plan);
  std::vector<size_t> order;
  for (size_t b = 0; b < plan.buffers.size(); ++b)
    if (plan.buffers[b].kind != BufferKind::resident && lifetimes[b].first >= 0) order.push_back(b);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return lifetimes[a].first < lifetimes[b].first; });
  Table table({"offset", "bytes", "alive", "buffer"});
  for (size_t b : order) {
    const Buffer& buffer = plan.buffers[b];
    table.Add({std::to_string(buffer.offset), std::to_string(buffer.bytes),
               std::to_string(lifetimes[b].first) + "-" + std::to_string(lifetimes[b].last), buffer.name});
  }
  return table.str();
}

/// "reads a, b; updates c; writes d". Scratch and workspace, which the list of buffers names, are left out.
std::string Uses(const Plan& plan, const Action& action) {
  std::string text;
  for (const auto& [access, word] :
       {std::pair{Access::read, "reads "}, {Access::update, "updates "}, {Access::write, "writes "}}) {
    bool first = true;
    for (const Use& use : action.uses) {
      if (use.access != access || use.operand == Operand::scratch || use.operand == Operand::workspace) continue;
      if (first) text += (text.empty() ? "" : "; ") + std::string(word);
      text += (first ? "" : ", ") + plan.buffers[use.buffer].name;
      first = false;
    }
  }
  return text;
}

std::string Actions(const ModelLayout& layout, const Plan& plan) {
  Table table({"#", "stream", "action", "waits", "sends", "operands"});
  for (size_t a = 0; a < plan.actions.size(); ++a) {
    const Action& action = plan.actions[a];
    std::string name = Describe(layout, action);
    if (action.accumulate) name += " +=";
    if (action.all) name += " all";
    std::string waits;
    for (int wait : action.waits) waits += (waits.empty() ? "" : ",") + std::to_string(wait);
    const std::string uses =
        action.kind == ActionKind::release ? "drops " + plan.buffers[action.uses[0].buffer].name : Uses(plan, action);
    table.Add({std::to_string(a), NameOf(action.stream), name, waits, action.bytes ? std::to_string(action.bytes) : "",
               uses});
  }
  return table.str();
}

}  // namespace

std::string FormatMillis(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g ms", seconds * 1e3);
  return text;
}

std::string Describe(const ModelLayout& layout, const Action& action) {
  std::string text = NameOf(action.kind);
  const bool of_unit = action.unit >= 0;
  if (action.gradient) text += " gradient of";
  if (of_unit) text += " " + layout.units[action.unit].name;
  if (action.state != StateKind::none) text += std::string("/") + NameOf(action.state);
  if (!of_unit && action.segment >= 0) text += " " + layout.segments[action.segment].name;
  if (action.kind == ActionKind::reduce || (IsMessage(action) && of_unit)) {
    const bool tied = std::count_if(layout.slots.begin(), layout.slots.end(),
                                    [&](const GradientSlot& slot) { return slot.unit == action.unit; }) > 1;
    if (tied) text += " (" + layout.segments[layout.slots[action.slot].segment].name + ")";
  }
  if (action.bucket >= 0) text += " bucket " + std::to_string(action.bucket);
  if (action.micro_batch >= 0) text += " mb" + std::to_string(action.micro_batch);
  if (action.pending) text += " of the step before";
  if (action.peer >= 0)
    text += (action.kind == ActionKind::send ? " to stage " : " from stage ") + std::to_string(action.peer);
  return text;
}

std::string Describe(const ModelLayout& layout, const Plan& plan, size_t index) {
  return std::to_string(index) + " " + Describe(layout, plan.actions[index]);
}

std::string ToText(const ModelLayout& layout, const Plan& plan) {
  return Header(layout, plan) + "\nunits (elements)\n" + Units(layout, plan.options) + "\nresident buffers (bytes)\n" +
         Resident(plan) + "\narena buffers (bytes; alive: first and last action)\n" + Arena(plan) +
         "\nactions (sends: bytes that this rank sends, or moves between tiers)\n" + Actions(layout, plan);
}

}  // namespace ds
