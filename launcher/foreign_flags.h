// Flags of DeepSpeed's and PyTorch's launchers that ds-launch has no use for, or spells in another way: what to write
// instead, for people who come from there.
#pragma once

#include <string>
#include <vector>

namespace ds {

/// Throws UsageError that names the first such flag, why it is not taken, and what to write. `arguments` of ds-launch
/// as NormalisedArguments gives them, without a program's.
void RefuseForeignFlags(const std::vector<std::string>& arguments);

}  // namespace ds
