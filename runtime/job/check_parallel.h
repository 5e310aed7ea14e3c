// What the keys of `parallel` must be to one another, to the model and to the ranks.
#pragma once

#include <cstdint>

#include "runtime/job/job_spec.h"
#include "runtime/job/problems.h"

namespace ds {

/// Adds a problem for each rule that is broken; sets what follows from other keys. `ranks`: of the job.
void ResolveParallel(int64_t ranks, JobSpec& spec, Problems& problems);

}  // namespace ds
