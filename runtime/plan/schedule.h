// Pipeline schedules, as the order of each stage's work alone.
//
// The model's segments are cut into chunks, in model order; a stage holds one chunk, or several (virtual stages). A
// schedule says in which order each stage runs the passes of its chunks over the micro-batches. It knows nothing of
// messages, sharding or recomputation: other passes of the planner place those around it.
//
//   gpipe        all forwards, then all backwards. Huang et al., "GPipe", 2019
//   1f1b         as few forwards as fill the pipeline, then one backward, one forward (PipeDream-Flush). Narayanan et
//                al., "Memory-Efficient Pipeline-Parallel DNN Training", 2021
//   interleaved  the same over several chunks a stage, which shortens start and end. Narayanan et al., "Efficient
//                Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", 2021
//   zb-h1        1f1b whose gradients of weights come later, where a stage would wait. Qi et al., "Zero Bubble Pipeline
//                Parallelism", 2023
//   zb-v         two chunks a stage, laid out as a V: stage s holds chunks s and 2 * stages - 1 - s. Qi et al.,
//                "Pipeline Parallelism with Controllable Memory", 2024
//
// Every schedule runs the micro-batches of a chunk in their order in each of its passes, so gradients add up as they do
// without a pipeline.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/job/job_spec.h"

namespace ds {

enum class WorkKind : uint8_t {
  forward,
  backward,         // of input and weights, a segment at a time
  backward_input,   // of the input alone: what the stage before waits for
  backward_weight,  // the rest of it
};

/// One pass of a chunk over a micro-batch.
struct Work {
  WorkKind kind = WorkKind::forward;
  int chunk = 0;
  int micro_batch = 0;
  bool operator==(const Work&) const = default;
};

struct ScheduleShape {
  ScheduleKind kind = ScheduleKind::one_f_one_b;
  int stages = 1;
  int virtual_stages = 1;  ///< chunks of each stage; zb-v: 2
  int micro_batches = 1;
  bool training = true;  ///< false: forward passes alone, in the same order

  int chunks() const { return stages * virtual_stages; }
  /// Where a chunk is.
  int StageOf(int chunk) const;
};

/// The work of each stage. Throws std::invalid_argument where the shape is none: below 1, or with more chunks a stage
/// than its schedule has.
std::vector<std::vector<Work>> OrderWork(const ScheduleShape& shape);

/// "F0.3": the forward of chunk 0 over micro-batch 3. B: backward, I: of the input alone, W: of the weights alone.
std::string ToText(const Work& work);

/// What a chunk's work takes; a joined backward takes the sum of its parts.
struct WorkCost {
  double forward = 1, backward_input = 1, backward_weight = 1;
};

/// A schedule run in time: stages work in their order, and each piece of work waits for what it needs of its
/// neighbours.
struct SimulatedSchedule {
  struct Event {
    int stage = 0;
    size_t index = 0;  ///< in the stage's work
    double begin = 0, end = 0;
  };
  struct Stage {
    double busy = 0, begin = 0, end = 0;  ///< of all its work; begin of the first and end of the last
    double peak_live = 0;                 ///< most activations at a time, in chunks' shares of one micro-batch's model
    double idle() const { return end - begin - busy; }  ///< while it had work: without the skew of start and end
  };
  std::vector<Event>
      events;  ///< by their end, then by stage: an order that every stage's and every message's fits into
  std::vector<Stage> stages;
  double seconds = 0;  ///< until the last stage is done
  /// Of all the stages' time, the share in which they had nothing to do.
  double IdleShare() const;
  std::string stuck;  ///< "stage 1 waits at B0.2, ...": the schedule deadlocks. Empty: it does not
};

/// `costs`: of each chunk. `message`: from a chunk to the next on another stage.
SimulatedSchedule Simulate(const ScheduleShape& shape, const std::vector<std::vector<Work>>& work,
                           const std::vector<WorkCost>& costs, double message = 0);

}  // namespace ds
