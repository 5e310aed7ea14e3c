#include "runtime/plan/stages.h"

#include <set>
#include <utility>

namespace ds {

ScheduleShape ShapeOf(const PlanOptions& options) {
  const PipelinePlace& p = options.pipeline;
  return {p.schedule, p.stages, p.virtual_stages, static_cast<int>(options.micro_batches), options.training};
}

std::vector<Chunk> ChunksOf(const ModelLayout& layout, const PipelinePlace& pipeline) {
  const int segments = static_cast<int>(layout.segments.size());
  if (pipeline.begin.empty()) return {{0, segments}};
  std::vector<Chunk> chunks;
  for (size_t c = 0; c < pipeline.begin.size(); ++c)
    chunks.push_back({pipeline.begin[c], c + 1 < pipeline.begin.size() ? pipeline.begin[c + 1] : segments});
  return chunks;
}

StageParts PartsOf(const ModelLayout& layout, const PlanOptions& options) {
  StageParts parts;
  parts.stage_of.resize(layout.segments.size(), 0);
  parts.segments.resize(layout.segments.size(), false);
  parts.units.resize(layout.units.size(), false);
  parts.owned.resize(layout.units.size(), false);
  parts.slots.resize(layout.slots.size(), false);
  parts.slots_abroad.resize(layout.slots.size(), false);

  const ScheduleShape shape = ShapeOf(options);
  const std::vector<Chunk> chunks = ChunksOf(layout, options.pipeline);
  for (size_t c = 0; c < chunks.size(); ++c)
    for (int s = chunks[c].begin; s < chunks[c].end; ++s) parts.stage_of[s] = shape.StageOf(static_cast<int>(c));

  std::vector<bool> seen(layout.units.size(), false);
  for (size_t s = 0; s < layout.segments.size(); ++s) {
    const bool here = parts.stage_of[s] == options.pipeline.stage;
    parts.segments[s] = here;
    for (int unit : layout.units_of[s]) {
      if (here) parts.units[unit] = true;
      if (!seen[unit]) parts.owned[unit] = here;
      seen[unit] = true;
    }
    for (int slot : layout.slots_of[s]) parts.slots[slot] = here;
  }
  for (size_t slot = 0; slot < layout.slots.size(); ++slot)
    parts.slots_abroad[slot] = !parts.slots[slot] && parts.units[layout.slots[slot].unit];
  return parts;
}

bool ReadsSamples(const ModelLayout& layout, const PlanOptions& options) {
  const StageParts parts = PartsOf(layout, options);
  for (size_t s = 0; s < layout.segments.size(); ++s) {
    const SegmentSpec& segment = layout.segments[s];
    const bool end = segment.kind == SegmentKind::embedding || segment.kind == SegmentKind::head;
    if (parts.segments[s] && (end || segment.reset_attention)) return true;
  }
  return false;
}

Channel ChannelOf(const ScheduleShape& shape, int boundary, bool gradient) {
  Channel channel;
  channel.from = shape.StageOf(boundary);
  channel.to = shape.StageOf(boundary + 1);
  bool on = shape.kind != ScheduleKind::zb_v || boundary + 1 < shape.stages;  // the activation goes to the next stage
  if (gradient) std::swap(channel.from, channel.to), on = !on;
  if (!on) channel.send = StreamKind::send_previous, channel.receive = StreamKind::receive_next;
  return channel;
}

std::vector<StreamKind> MessageStreamsOf(const PlanOptions& options) {
  const ScheduleShape shape = ShapeOf(options);
  const int stage = options.pipeline.stage;
  std::set<StreamKind> streams;
  for (int boundary = 0; boundary + 1 < shape.chunks(); ++boundary) {
    for (const bool gradient : {false, true}) {
      const Channel channel = ChannelOf(shape, boundary, gradient);
      if (channel.from == channel.to) continue;
      if (channel.from == stage) streams.insert(channel.send);
      if (channel.to == stage) streams.insert(channel.receive);
    }
  }
  const bool at_an_end = stage == shape.StageOf(0) || stage == shape.StageOf(shape.chunks() - 1);
  if (options.pipeline.ties && at_an_end) streams.insert(StreamKind::tied);
  return {streams.begin(), streams.end()};
}

int OtherStageOf(const ModelLayout& layout, const StageParts& parts, const PlanOptions& options, int slot) {
  for (size_t other = 0; other < layout.slots.size(); ++other) {
    const int stage = parts.stage_of[layout.slots[other].segment];
    if (layout.slots[other].unit == layout.slots[slot].unit && stage != options.pipeline.stage) return stage;
  }
  return -1;
}

}  // namespace ds
