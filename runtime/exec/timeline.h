// Where the time of a step went, and what it moved.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/plan/plan.h"

namespace ds {

/// One action of one step, for a trace. Seconds since the step began.
struct Span {
  int action = 0;
  double begin = 0, end = 0;
};

struct Timeline {
  double seconds[kActionKinds] = {};  ///< inside actions of a kind, on whichever stream
  int64_t bytes[kActionKinds] = {};   ///< that this rank sent
  double compute_seconds = 0;         ///< inside kernels on the compute stream
  /// The compute stream waited for another stream or for a collective of its own, or handed its core to one.
  double exposed_comm_seconds = 0;
  double total_seconds = 0;  ///< from the first action to the end of the last stream
  std::vector<Span> spans;   ///< filled when the step is traced

  /// Neither kernels nor communication: what the executor itself costs.
  double overhead_seconds() const { return total_seconds - compute_seconds - exposed_comm_seconds; }
};

}  // namespace ds
