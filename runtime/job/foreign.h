// Configuration files of other programs, which people hand over by mistake: told by their keys, so that one error names
// what the file is, instead of one for each of its keys.
#pragma once

#include <string>

#include "runtime/base/value.h"

namespace ds {

/// What `section` is and what to do instead, where its keys are those of another program's file; empty where they are
/// not. `place`: "deepspeed" for a deepspeed section, "" for a job file.
std::string DescribeForeign(const Value& section, const std::string& place);

}  // namespace ds
