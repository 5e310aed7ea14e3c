// How executors name an action of a step to failpoints and in errors.
#pragma once

#include <cstdint>
#include <exception>
#include <string>

#include "runtime/plan/plan.h"

namespace ds {

/// "step:3/BackwardWeight layer3.mlp mb0".
std::string FailpointOf(const ModelLayout& layout, const Plan& plan, int64_t step, size_t index);

/// The exception in flight, with rank, step and action in front; its kind stays.
std::exception_ptr Explain(const ModelLayout& layout, const Plan& plan, int64_t step, size_t index);

}  // namespace ds
