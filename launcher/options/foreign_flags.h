// Flags of DeepSpeed's and PyTorch's launchers that ds-launch has no use for, or spells in another way: what to write
// instead, for people who come from there.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace ds {

/// Throws UsageError that names the first such flag that is none of the `app`'s, why it is not taken, and what to
/// write. `arguments` of ds-launch as NormalisedArguments gives them, without a program's.
void RefuseForeignFlags(const CLI::App& app, const std::vector<std::string>& arguments);

}  // namespace ds
