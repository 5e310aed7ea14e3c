// What of the model the plan of one pipeline stage has, and over which streams it meets its neighbours.
#pragma once

#include <vector>

#include "runtime/plan/plan.h"
#include "runtime/plan/schedule.h"

namespace ds {

/// How the plan's work is ordered.
ScheduleShape ShapeOf(const PlanOptions& options);

/// A run of segments, [begin, end).
struct Chunk {
  int begin = 0, end = 0;
};
/// All chunks of the model, in its order.
std::vector<Chunk> ChunksOf(const ModelLayout& layout, const PipelinePlace& pipeline);

/// What a stage has. Of one stage: everything.
struct StageParts {
  std::vector<int> stage_of;   ///< a segment: its stage
  std::vector<bool> segments;  ///< computed here
  std::vector<bool> units;     ///< kept here, and stepped
  /// Kept here, counted in this stage's Norm and written to checkpoints by it: each unit of the model is owned once.
  std::vector<bool> owned;
  std::vector<bool> slots;         ///< gradients kept here: those that its segments write, and ...
  std::vector<bool> slots_abroad;  ///< ... of a tied unit that another stage has too the one that comes from there
};
StageParts PartsOf(const ModelLayout& layout, const PlanOptions& options);

/// Whether the stage's segments read tokens, targets or where documents begin.
bool ReadsSamples(const ModelLayout& layout, const PlanOptions& options);

/// The way of a message between two chunks on neighbouring stages.
struct Channel {
  int from = 0, to = 0;  ///< stages
  StreamKind send = StreamKind::send_next, receive = StreamKind::receive_previous;
};
/// Between chunk `boundary` and the next: of the activation, which goes on, or of its gradient, which comes back.
Channel ChannelOf(const ScheduleShape& shape, int boundary, bool gradient);

/// The streams on which a stage sends to others and receives from them, ascending.
std::vector<StreamKind> MessageStreamsOf(const PlanOptions& options);

/// The other stage that has the unit of a gradient slot; -1: none has.
int OtherStageOf(const ModelLayout& layout, const StageParts& parts, const PlanOptions& options, int slot);

}  // namespace ds
