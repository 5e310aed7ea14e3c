#include "launcher/job/job.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <utility>

#include "launcher/bootstrap/choose.h"
#include "launcher/bootstrap/slurm_allocation.h"
#include "launcher/job/program.h"
#include "runtime/base/error.h"
#include "runtime/base/number.h"
#include "runtime/base/nvml.h"
#include "runtime/base/text.h"
#include "runtime/job/data_paths.h"
#include "runtime/job/keys.h"
#include "runtime/job/preflight_names.h"
#include "runtime/job/yaml.h"
#include "runtime/run/prepare.h"
#include "runtime/run/resume_check.h"

namespace ds {
namespace {

namespace fs = std::filesystem;

constexpr int kDefaultCpuWorkers = 2;

/// GPUs of this machine, as its agent will find them. Asking takes a while: once.
int CountGpusHere() {
  static const int count = static_cast<int>(VisibleGpus().size());
  return count;
}

HostSlots WithSlots(const std::string& host, int count) {
  HostSlots entry{host, "", {}};
  for (int slot = 0; slot < count; ++slot) entry.slots.push_back(slot);
  return entry;
}

/// The allocation's nodes. Without GPUs --num-gpus is a number of workers that share a node's cores, as elsewhere.
std::vector<HostSlots> AllocatedHosts(const SlurmAllocation& allocation, HostFilter filter) {
  std::vector<HostSlots> hosts = allocation.hosts;
  const bool gpus = std::any_of(allocation.gpus.begin(), allocation.gpus.end(), [](int n) { return n > 0; });
  if (filter.num_gpus && !gpus && !filter.include && !filter.exclude) {
    for (HostSlots& host : hosts) host = WithSlots(host.host, *filter.num_gpus);
    filter.num_gpus.reset();
  }
  return ApplyFilters(std::move(hosts), filter);
}

/// launch.bootstrap, before the spec is read.
std::string AskedBootstrap(const LaunchOptions& options) {
  if (!options.bootstrap.empty()) return options.bootstrap;
  if (options.program.empty()) return PeekBootstrap(options.job_file, options.overrides);
  std::string asked = "auto";
  for (const Override& change : options.overrides) {
    if (change.key == "launch.bootstrap") asked = change.value;
  }
  return asked;
}

std::vector<HostSlots> ChooseHosts(const LaunchOptions& options) {
  if (options.plan_for) {
    std::vector<HostSlots> hosts;
    for (int node = 0; node < options.plan_for->first; ++node) {
      hosts.push_back(WithSlots("node-" + std::to_string(node), options.plan_for->second));
    }
    return ApplyFilters(std::move(hosts), options.filter);
  }
  if (!options.hostfile.empty()) return ApplyFilters(LoadHostfile(options.hostfile), options.filter);
  if (TakesSlurmAllocation(AskedBootstrap(options))) return AllocatedHosts(ThisSlurmAllocation(), options.filter);
  int gpus = CountGpusHere();
  HostFilter filter = options.filter;
  if (filter.num_gpus && gpus == 0 && !filter.include && !filter.exclude) {
    gpus = *filter.num_gpus;  // that many workers that share the cores
    filter.num_gpus.reset();
  }
  return ApplyFilters({WithSlots("localhost", gpus > 0 ? gpus : kDefaultCpuWorkers)}, filter);
}

}  // namespace

DeviceKind DeviceExpected(const Job& job) {
  const bool here = job.options.hostfile.empty() && !job.options.plan_for;
  const DeviceChoice device = job.spec.training.device;
  const bool measured = job.machine && !here && job.machine->device.kind == DeviceKind::cuda;
  bool found = here ? CountGpusHere() > 0 : measured;
  if (here && TakesSlurmAllocation(job.bootstrap())) {
    const std::vector<int>& gpus = ThisSlurmAllocation().gpus;
    found = std::any_of(gpus.begin(), gpus.end(), [](int n) { return n > 0; });
  }
  const bool gpus = device == DeviceChoice::gpu || (device == DeviceChoice::automatic && found);
  return gpus && !job.foreign() ? DeviceKind::cuda : DeviceKind::cpu;
}

namespace {

/// Options that stand for a key of the spec win over it.
void ApplyKeyOptions(const LaunchOptions& options, JobSpec& spec) {
  for (const KeyOption& option : options.key_options) {
    const std::vector<Key>& keys = Keys();
    const auto key = std::find_if(keys.begin(), keys.end(), [&](const Key& k) { return k.path == option.key; });
    Value value;
    value.kind = Value::Kind::scalar;
    value.text = option.value;
    try {
      key->read(spec, value);
    } catch (const ValueError& error) {
      throw UsageError(option.flag + " " + option.value + ": " + error.reason());
    }
  }
}

/// A program's spec: its name and the keys of job.name and launch.* that --set gives.
JobSpec SpecOfProgram(const LaunchOptions& options) {
  JobSpec spec;
  spec.name = ProgramName(options);
  bool named = false, suspects = false;
  for (const Override& change : options.overrides) {
    const Key* found = nullptr;
    for (const Key& key : Keys()) {
      bool applies = key.path == "job.name" || (key.path.starts_with("launch.") && key.path != "launch.env");
      if (applies && key.path == change.key) found = &key;
    }
    std::string flag = "--set " + change.key + "=" + change.value;
    if (!found && (change.key == "launch.env" || change.key.starts_with("launch.env."))) {
      const std::string name =
          change.key == "launch.env" ? "NAME" : change.key.substr(std::string("launch.env.").size());
      throw UsageError(flag + ": it is of job files; a program's variables are given by --export " + Shown(name) +
                       "=VALUE");
    }
    if (!found) {
      throw UsageError(flag + ": a program has no such key; job.name and launch.* apply to it (variables: --export)");
    }
    const Value value = ParseYaml(change.value, flag);
    try {
      found->read(spec, value);
    } catch (const ValueError& error) {
      throw UsageError(flag + ": " + error.reason());
    }
    named = named || change.key == "job.name";
    suspects = suspects || change.key == "launch.suspect_seconds";
  }
  LaunchConfig& launch = spec.launch;
  if (!suspects) launch.suspect_seconds = std::min(launch.suspect_seconds, launch.lease_seconds);
  if (launch.suspect_seconds > launch.lease_seconds)
    throw UsageError(
        "--set launch.suspect_seconds: more than launch.lease_seconds, after which a node is lost; write at "
        "most that");
  if (!named && !IsJobName(spec.name))
    throw UsageError("-- " + Shown(options.program[0]) +
                     ": a run is named after its program, and this name can be no folder's: name an executable, or add "
                     "--set job.name=NAME");
  return spec;
}

/// What is planned for nodes that nobody can ask must agree with itself.
void CheckMachine(const Job& job) {
  if (!job.machine || !job.options.plan_for) return;
  const bool cuda = job.machine->device.kind == DeviceKind::cuda;
  const DeviceChoice device = job.spec.training.device;
  if (device == DeviceChoice::automatic || cuda == (device == DeviceChoice::gpu)) return;
  throw UsageError("--machine " + job.machine_from + ": it is of " + (cuda ? "GPUs" : "CPUs") + " (" +
                   job.machine->device.name + "), and training.device is " + (cuda ? "cpu" : "gpu") +
                   ": give a file of that device, or write training.device: auto");
}

}  // namespace

BootstrapSettings BootstrapSettingsOf(const Job& job) {
  const LaunchConfig& launch = job.spec.launch;
  BootstrapSettings settings;
  settings.agent = launch.agent;
  settings.ssh_config = launch.ssh_config;
  settings.ssh_port = static_cast<int>(launch.ssh_port);
  settings.daemon_site = launch.daemon_site;
  settings.daemon_port = static_cast<int>(launch.daemon_port);
  settings.join_seconds = launch.join_seconds;
  settings.lease_seconds = launch.lease_seconds;
  return settings;
}

namespace {

std::string WorkingDirectory() {
  std::error_code error;
  const fs::path path = fs::current_path(error);
  if (error) throw UsageError("the working directory cannot be found (" + error.message() + "): change to another one");
  return path.string();
}

}  // namespace

namespace {

/// An option that is of no use is said, not ignored.
void CheckSshOptions(const Job& job) {
  if (job.options.plan_for) return;
  for (const KeyOption& option : job.options.key_options) {
    if (!option.flag.starts_with("--ssh-")) continue;
    const BootstrapChoice choice = ChooseBootstrap(job.bootstrap(), job.hosts);
    if (choice.kind != "ssh")
      throw UsageError(option.flag + ": the bootstrap is " + choice.Text() +
                       ", which uses no ssh; leave it out, or add " + "--bootstrap ssh");
  }
}

}  // namespace

std::vector<int> Job::Nodes() const {
  std::vector<int> nodes;
  for (const RankEntry& rank : ranks) {
    if (nodes.empty() || nodes.back() != rank.node) nodes.push_back(rank.node);
  }
  return nodes;
}

namespace {

/// `ds-launch ls -l`, as mpirun and srun take it.
void CheckNoProgram(const LaunchOptions& options) {
  const std::string& name = options.job_file;
  if (name.empty()) return;
  std::error_code ignored;
  const std::string kind = fs::path(name).extension().string();
  const bool spec = kind == ".yaml" || kind == ".yml" || kind == ".json";
  const bool there = fs::exists(name, ignored);
  const bool program = there ? fs::is_regular_file(name, ignored) && ::access(name.c_str(), X_OK) == 0 : !spec;
  if (program && !spec)
    throw UsageError(Shown(name, 400) + (there ? " is a program" : ": there is no such job file") +
                     "; a program goes behind `--`: ds-launch [OPTIONS] -- " + Shown(name, 400) + " ARGS...");
}

/// The spec for the ranks of all hosts. Where they do not divide the batch and launch.min_nodes allows for fewer, for
/// those of the first hosts that do: the rest are spares.
void LoadSpec(Job& job) {
  const LaunchOptions& options = job.options;
  if (job.foreign()) {
    job.spec = SpecOfProgram(options);
    return;
  }
  try {
    job.spec = LoadJobSpec(options.job_file, options.overrides, job.world());
    return;
  } catch (const UsageError& refused) {
    std::string reason = refused.what();
    std::vector<int> nodes(job.hosts.size());
    std::iota(nodes.begin(), nodes.end(), 0);
    while (nodes.size() > 1) {
      nodes.pop_back();
      std::vector<RankEntry> ranks = MapRanks(job.hosts, nodes);
      try {
        job.spec = LoadJobSpec(options.job_file, options.overrides, static_cast<int>(ranks.size()));
        if (job.spec.launch.min_nodes.value_or(INT64_MAX) > static_cast<int64_t>(nodes.size())) break;
        job.ranks = std::move(ranks);
        return;
      } catch (const UsageError& again) {
        if (again.what() == std::exchange(reason, again.what())) break;  // it is not the number of ranks
      }
    }
    throw;
  }
}

}  // namespace

Job PrepareJob(const LaunchOptions& options) {
  Job job;
  job.options = options;
  job.working_directory = WorkingDirectory();
  CheckNoProgram(options);
  job.hosts = ChooseHosts(options);
  job.ranks = MapRanks(job.hosts);
  LoadSpec(job);
  ApplyKeyOptions(options, job.spec);
  CheckSshOptions(job);
  if (!job.foreign() && !options.plan_for) CheckDataPaths(job.spec, options.job_file, options.overrides);
  CheckJobName(job.spec.name);
  if (job.spec.launch.min_nodes.value_or(0) > static_cast<int64_t>(job.hosts.size())) {
    throw UsageError("launch.min_nodes " + std::to_string(*job.spec.launch.min_nodes) + " is more than the job's " +
                     std::to_string(job.hosts.size()) + " nodes; write at most that, or `all`");
  }
  if (job.foreign()) job.program = ProgramArgv(options);
  job.shown = ParseRankSet("--tee", options.tee, job.world());
  job.logged = ParseRankSet("--log-ranks", options.log_ranks, job.world());
  job.variable_sources = VariablesForWorkers(job.spec, options);
  if (!options.skip_checks.empty()) AddCheckNames(Join(options.skip_checks, ","), job.spec.launch.skip_checks);
  if (!options.plan_for) {
    ResumeChoice resume = ChooseResume(options.resume, options.output, job.spec.name);
    job.resume = std::move(resume.checkpoint);
    job.parent = std::move(resume.parent);
    job.resume_fallbacks = std::move(resume.fallbacks);
    if (!job.foreign() && !job.resume.empty()) CheckResume(job.spec, job.world(), job.resume);
  }
  if (!job.foreign()) {
    MachineChoice machine = ChooseMachine(options.machine, job.resume, job.parent);
    job.machine = std::move(machine.machine);
    job.machine_from = std::move(machine.from);
    job.machine_changed = std::move(machine.changed);
  }
  CheckMachine(job);
  return job;
}

}  // namespace ds
