// What the command lines of the launcher's tools share.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace ds {

/// argv[1..] with the names of long flags spelled with dashes (`--num_gpus` -> `--num-gpus`); values are left as they
/// are, and so is everything from `--` on.
std::vector<std::string> NormalisedArguments(int argc, char** argv);

/// Parses; prints help and returns 0 where it was asked for. Throws UsageError where an argument is wrong.
std::optional<int> ParseArguments(CLI::App& app, std::vector<std::string> arguments);

}  // namespace ds
