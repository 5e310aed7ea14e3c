// Whether a job can go on from a checkpoint, told from its manifest before any worker starts.
#pragma once

#include <string>

#include "runtime/job/job_spec.h"

namespace ds {

/// Throws UsageError where the parameters of the checkpoint in `folder` are not those of the job's model, or its
/// optimizer state is another optimizer's: names the parameter or the optimizers. `world`: ranks of the job. Workers
/// look again, at what they load.
void CheckResume(const JobSpec& spec, int world, const std::string& folder);

}  // namespace ds
