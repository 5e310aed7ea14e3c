// Where a job keeps what is offloaded: DeepSpeed's keys, the older ones and the job's own, put together.
#pragma once

#include <string>

#include "runtime/job/deepspeed.h"

namespace ds {

/// Whether some of the job's state or activations are kept in files.
bool UsesFiles(const JobSpec& spec);

/// UsesFiles, or it may come to that: some placement is auto, and there are folders.
bool MayUseFiles(const JobSpec& spec);

/// Whether the planner has yet to choose where something is kept.
bool LeavesPlacementOpen(const JobSpec& spec);

/// Fills in the spec's targets, ratio, folders (absolute, each once) and blocks; notes keys that are of no effect. Adds
/// problems where keys contradict each other, a ZeRO stage has nothing to offload, or files have no folder. `root` is
/// the whole job.
void ResolveOffload(const DeepSpeedDraft& draft, const Value& root, const std::string& folder, Problems& problems);

}  // namespace ds
