#include "launcher/job/worker_environment.h"

#include <sys/stat.h>

#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>

#include "runtime/base/error.h"
#include "runtime/base/input_file.h"
#include "runtime/base/process.h"
#include "runtime/base/text.h"
#include "runtime/job/env_file.h"

namespace ds {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEnvFile = ".deepspeed_env";
constexpr const char* kEnvFileVariable = "DS_ENV_FILE";
constexpr const char* kGpus = "CUDA_VISIBLE_DEVICES";
/// Linux's MAX_ARG_STRLEN with the zero byte at its end.
constexpr size_t kLongestString = 128 << 10;

/// DeepSpeed's prefixes of what it hands on to other nodes.
constexpr std::string_view kHandedOn[] = {"MLFLOW", "MV2", "NCCL", "PYTHON", "UCX"};

using Variables = std::vector<std::pair<std::string, std::string>>;

std::pair<std::string, std::string> Split(const std::string& variable) {
  const size_t equals = std::min(variable.find('='), variable.size());
  return {variable.substr(0, equals), variable.substr(std::min(equals + 1, variable.size()))};
}

/// Of the environment that ds-launch was started with.
std::optional<std::string> Inherited(const std::string& name) {
  for (const std::string& variable : InheritedEnvironment()) {
    auto [found, value] = Split(variable);
    if (found == name) return value;
  }
  return std::nullopt;
}

Variables HandedOn() {
  Variables variables;
  for (const std::string& variable : InheritedEnvironment()) {
    for (std::string_view prefix : kHandedOn) {
      if (variable.starts_with(prefix)) variables.push_back(Split(variable));
    }
  }
  return variables;
}

/// Whether the workers may be given this variable. `where` names its place in errors.
void Check(const std::string& where, const std::string& name, const std::string& value, bool program) {
  const std::vector<std::string>& places = PlaceVariables();
  const bool place = program && std::find(places.begin(), places.end(), name) != places.end();
  if (place || name == "DS_RUN_ID") {
    throw UsageError(where + ": " + name + ": ds-launch sets it for each worker; leave it out" +
                     (name == "MASTER_PORT"   ? " (--master-port N chooses the port)"
                      : name == "MASTER_ADDR" ? " (--master-addr ADDRESS chooses the address)"
                                              : ""));
  }
  if (name == kGpus && !program) {
    throw UsageError(
        where + ": " + name +
        ": the slots of a node choose its workers' GPUs, of those that this variable leaves where ds-launch "
        "or its agents start; set it there, choose slots with --include, or set training.device: cpu");
  }
  if (name.size() + value.size() + 2 > kLongestString) {
    throw UsageError(where + ": " + Shown(name) + ": " + std::to_string(value.size()) +
                     " bytes, and Linux starts no process with a variable of more than " +
                     std::to_string(kLongestString - name.size() - 2) + "; hand it over in a file");
  }
}

std::pair<std::string, std::string> ParseExport(const std::string& text) {
  auto [name, value] = Split(text);
  if (name.empty()) throw UsageError("--export " + text + ": expected NAME or NAME=VALUE");
  if (name.size() < text.size()) return {name, value};
  const std::optional<std::string> inherited = Inherited(name);
  if (!inherited) throw UsageError("--export " + name + ": there is no such variable in ds-launch's environment");
  return {name, *inherited};
}

/// Arguments and variables of a process together, as execve(2) has it: a quarter of the stack, 6 MiB at most. What the
/// node's own environment has comes to it; Spawn tells where only that is too much.
void CheckTotal(const std::vector<VariableSource>& sources, const std::vector<std::string>& arguments) {
  constexpr uint64_t kLeast = 128 << 10, kMost = 6 << 20;
  std::map<std::string, uint64_t> sizes;  // later values take the place of earlier ones
  for (const VariableSource& source : sources)
    for (const auto& [name, value] : source.variables) sizes[name] = name.size() + value.size() + 2 + sizeof(char*);
  uint64_t total = 0;
  for (const auto& [name, size] : sizes) total += size;
  for (const std::string& argument : arguments) total += argument.size() + 1 + sizeof(char*);
  rlimit stack{};
  ::getrlimit(RLIMIT_STACK, &stack);
  const uint64_t most =
      stack.rlim_cur == RLIM_INFINITY ? kMost : std::clamp<uint64_t>(stack.rlim_cur / 4, kLeast, kMost);
  if (total <= most) return;
  throw UsageError("the variables for workers" + std::string(arguments.empty() ? "" : " and the program's arguments") +
                   " have " + std::to_string(total) + " bytes (launch.env, --export, " + kEnvFile +
                   "), and Linux starts no process with more than " + std::to_string(most) +
                   " of them (a quarter of `ulimit -s`): hand values over in a file");
}

/// Where DeepSpeed looks, in its order. DS_ENV_FILE names the file, or is a path.
std::vector<fs::path> EnvFiles() {
  const char* named = std::getenv(kEnvFileVariable);
  const fs::path file = named && *named ? named : kEnvFile;
  std::vector<fs::path> paths;
  const char* home = std::getenv("HOME");
  if (file.is_absolute()) {
    paths.push_back(file);
  } else {
    if (home && *home) paths.push_back(fs::path(home) / file);
    paths.push_back(file);
  }
  std::error_code none, other;
  if (paths.size() == 2 && fs::equivalent(paths[0], paths[1], none)) paths.pop_back();
  std::vector<fs::path> found;
  for (const fs::path& path : paths) {
    if (fs::exists(path, other)) found.push_back(path);
  }
  if (named && *named && found.empty()) {
    throw UsageError(std::string(kEnvFileVariable) + "=" + named + ": there is no such file" +
                     (file.is_absolute() ? "" : " in the home folder or the working directory"));
  }
  return found;
}

VariableSource ReadEnvFile(const fs::path& path, bool program) {
  VariableSource source{path.string(), {}};
  std::string text;
  try {
    if (!fs::is_regular_file(path)) throw UsageError(path.string() + ": not a file of variables");
    text = ReadInputFile(path);
  } catch (const fs::filesystem_error& error) {
    throw UsageError(path.string() + ": " + error.code().message());
  } catch (const SystemError& error) {
    throw UsageError(std::string(error.what()) +
                     ", whose variables the workers would get; make it readable, or move it");
  }
  for (EnvVariable& variable : ParseEnvFile(text, path.string())) {
    Check(variable.where.str(), variable.name, variable.value, program);
    source.variables.emplace_back(std::move(variable.name), std::move(variable.value));
  }
  return source;
}

}  // namespace

const std::vector<std::string>& PlaceVariables() {
  static const std::vector<std::string> names = {"RANK",
                                                 "LOCAL_RANK",
                                                 "WORLD_SIZE",
                                                 "LOCAL_WORLD_SIZE",
                                                 "LOCAL_SIZE",
                                                 "GROUP_RANK",
                                                 "GROUP_WORLD_SIZE",
                                                 "ROLE_RANK",
                                                 "ROLE_WORLD_SIZE",
                                                 "CROSS_RANK",
                                                 "CROSS_SIZE",
                                                 "MASTER_ADDR",
                                                 "MASTER_PORT",
                                                 "TORCHELASTIC_RESTART_COUNT",
                                                 "TORCHELASTIC_MAX_RESTARTS",
                                                 "TORCHELASTIC_RUN_ID",
                                                 "TORCHELASTIC_USE_AGENT_STORE"};
  return names;
}

std::vector<VariableSource> VariablesForWorkers(const JobSpec& spec, const LaunchOptions& options) {
  const bool program = !options.program.empty();
  std::vector<VariableSource> sources;
  sources.push_back({"ds-launch's own beginning with MLFLOW, MV2, NCCL, PYTHON or UCX", HandedOn()});
  for (const fs::path& path : EnvFiles()) sources.push_back(ReadEnvFile(path, program));
  sources.push_back({"launch.env", spec.launch.env});
  for (const auto& [name, value] : spec.launch.env) Check("launch.env", name, value, program);
  VariableSource exports{"--export", {}};
  for (const std::string& text : options.exports) {
    exports.variables.push_back(ParseExport(text));
    Check("--export", exports.variables.back().first, exports.variables.back().second, program);
  }
  sources.push_back(std::move(exports));
  CheckTotal(sources, options.program);
  std::erase_if(sources, [](const VariableSource& source) { return source.variables.empty(); });
  return sources;
}

std::string DescribeVariables(const std::vector<VariableSource>& sources, bool program) {
  std::map<std::string, size_t> last;  // which source has the last word
  for (size_t i = 0; i < sources.size(); ++i) {
    for (const auto& [name, value] : sources[i].variables) last[name] = i;
  }
  std::string text =
      "Variables for the workers (names alone; later lines win)\n  the environment of each node's agent\n";
  for (size_t i = 0; i < sources.size(); ++i) {
    std::vector<std::string> names;
    for (const auto& [name, value] : sources[i].variables) {
      const std::string shown = Shown(name) + (last[name] == i ? "" : " (overridden)");
      if (std::find(names.begin(), names.end(), shown) == names.end()) names.push_back(shown);
    }
    text += "  " + sources[i].name + ": " + Join(names, ", ") + "\n";
  }
  if (program) text += "  set for each worker: " + Join(PlaceVariables(), ", ") + "\n";
  return text;
}

}  // namespace ds
