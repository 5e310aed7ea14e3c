// The node's part of the preflight: what it has and allows, looked at before workers start. The launcher judges what
// depends on the job (launcher/preflight.h); a check says itself what is wrong whatever runs.
#pragma once

#include <string>
#include <vector>

#include "proto/deepshard.pb.h"

namespace ds {

/// Looks at one thing. Facts go into `found`. What is wrong whatever the job is goes into `check`: passed = false,
/// text, and warning where a job may go on. Runs on a thread of its own, beside the others; throws nothing.
struct NodeCheck {
  const char* name;  ///< of kCheckNames (runtime/job/preflight_names.h)
  void (*look)(const deepshard::v1::Bootstrap& bootstrap, deepshard::v1::NodeFacts& found,
               deepshard::v1::NodeFacts::Check& check);
  bool always = false;  ///< made even where it is to be skipped: its facts are needed to place ranks
};

/// A check that has not ended by then has failed: a dead file system or driver must not hold a job up in silence.
inline constexpr double kNodeCheckSeconds = 10;

/// Makes the checks, all at once, and adds to `facts` what each found and how long it took, in the list's order. Those
/// of bootstrap.skip_checks are left out.
void RunNodeChecks(const std::vector<NodeCheck>& checks, const deepshard::v1::Bootstrap& bootstrap, double seconds,
                   deepshard::v1::NodeFacts& facts);
/// All of them.
void RunNodeChecks(const deepshard::v1::Bootstrap& bootstrap, deepshard::v1::NodeFacts& facts);

// One a file of this folder.
void LookAtDisks(const deepshard::v1::Bootstrap&, deepshard::v1::NodeFacts&, deepshard::v1::NodeFacts::Check&);
void LookAtSharedOutput(const deepshard::v1::Bootstrap&, deepshard::v1::NodeFacts&, deepshard::v1::NodeFacts::Check&);
void LookAtOpenFiles(const deepshard::v1::Bootstrap&, deepshard::v1::NodeFacts&, deepshard::v1::NodeFacts::Check&);
void LookAtLockedMemory(const deepshard::v1::Bootstrap&, deepshard::v1::NodeFacts&, deepshard::v1::NodeFacts::Check&);
void LookAtProcesses(const deepshard::v1::Bootstrap&, deepshard::v1::NodeFacts&, deepshard::v1::NodeFacts::Check&);
void LookAtShm(const deepshard::v1::Bootstrap&, deepshard::v1::NodeFacts&, deepshard::v1::NodeFacts::Check&);
void LookAtSlots(const deepshard::v1::Bootstrap&, deepshard::v1::NodeFacts&, deepshard::v1::NodeFacts::Check&);
void LookAtContainment(const deepshard::v1::Bootstrap&, deepshard::v1::NodeFacts&, deepshard::v1::NodeFacts::Check&);
void LookAtGpuState(const deepshard::v1::Bootstrap&, deepshard::v1::NodeFacts&, deepshard::v1::NodeFacts::Check&);
void LookAtWorker(const deepshard::v1::Bootstrap&, deepshard::v1::NodeFacts&, deepshard::v1::NodeFacts::Check&);

}  // namespace ds
