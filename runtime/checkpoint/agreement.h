// Ranks that agree whether a step of a collective write succeeded, so that none goes on alone.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"

namespace ds {

/// Another rank failed in its part of common work, and all ranks know: this one is its victim.
class PeerFailed : public CommunicatorAborted {
 public:
  using CommunicatorAborted::CommunicatorAborted;
};

/// Runs `work` on this rank, then learns how the others fared. When any rank's `work` threw an exception, every rank
/// throws `what` + ": rank R: " + its message, R being the first that failed: R a RuntimeError, the others PeerFailed.
/// A broken communicator throws CommunicatorAborted as ever. Collective.
void TogetherOrThrow(Communicator& control, const std::string& what, const std::function<void()>& work);

/// The texts of all ranks, in rank order, on rank 0; empty elsewhere. Collective.
std::vector<std::string> GatherTexts(Communicator& control, const std::string& text);

}  // namespace ds
