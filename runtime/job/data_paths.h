// Whether the data that a job names is there: seen before anything starts.
#pragma once

#include <string>
#include <vector>

#include "runtime/job/job_spec.h"

namespace ds {

/// Throws UsageError "file:line:column: key: value: reason" for every path of data.train and data.validation that does
/// not exist, cannot be read on this machine, or whose first bytes are of no data of its name. `path` and `overrides`
/// are those that LoadJobSpec made `spec` from.
void CheckDataPaths(const JobSpec& spec, const std::string& path, const std::vector<Override>& overrides);

}  // namespace ds
