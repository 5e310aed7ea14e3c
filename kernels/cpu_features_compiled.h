// What the compiler was allowed to use for the kernels. Internal to kernels/.
#pragma once

#include <cstdint>

namespace ds::detail {

/// A bit an instruction set, in the order of the table in cpu_features.cc. Data and no code: it is compiled like the
/// kernels and must be readable on a CPU that cannot run them.
extern const uint32_t kCompiledFeatures;

}  // namespace ds::detail
