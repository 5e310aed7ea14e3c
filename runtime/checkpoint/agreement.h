// Ranks that agree whether a step of a collective write succeeded, so that none goes on alone.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"

namespace ds {

/// Runs `work` on this rank, then learns how the others fared. Throws on every rank, when any rank's `work` threw an
/// exception, RuntimeError(`what` + ": rank R: " + its message), R being the first that failed. A broken communicator
/// throws CommunicatorAborted as ever. Collective.
void TogetherOrThrow(Communicator& control, const std::string& what, const std::function<void()>& work);

/// The texts of all ranks, in rank order, on rank 0; empty elsewhere. Collective.
std::vector<std::string> GatherTexts(Communicator& control, const std::string& text);

}  // namespace ds
