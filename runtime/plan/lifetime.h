// When each arena buffer is alive, in list order.
#pragma once

#include <vector>

#include "runtime/plan/plan.h"

namespace ds {

/// Actions [first, last] between which a buffer's memory is its own; first is -1 when nothing uses it.
struct Lifetime {
  int first = -1, last = -1;
};

/// Lifetimes of all buffers; of resident ones too (they play no part in the arena). A buffer whose last use is on
/// another stream than compute stays alive for the next three passes of segments, a backward: handed out at once, its
/// memory would make that backward wait for the transfer that it is meant to run beside. For the same reason one of the
/// host's pending updates keeps its memory for the next one, a Gather beside the pass listed
/// before it has its buffers from there on, and one that a Receive fills is alive for the three passes before it.
std::vector<Lifetime> Lifetimes(const Plan& plan);

}  // namespace ds
