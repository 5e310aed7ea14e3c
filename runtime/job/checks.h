// What must hold between the keys of a job spec.
#pragma once

#include "runtime/job/job_spec.h"
#include "runtime/job/problems.h"

namespace ds {

/// Checks a spec whose defaults are filled in. A check is left out where one of its keys has a problem already.
void CheckSpec(const JobSpec& spec, Problems& problems);

}  // namespace ds
