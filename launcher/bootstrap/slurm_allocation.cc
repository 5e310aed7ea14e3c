#include "launcher/bootstrap/slurm_allocation.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <string_view>

#include "launcher/bootstrap/slurm_nodelist.h"
#include "runtime/base/captured.h"
#include "runtime/base/clock.h"
#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace ds {
namespace {

/// Programs of SLURM try for most of a minute where munge is down, and say nothing meanwhile.
constexpr double kAskSeconds = 15;

constexpr char kOutside[] =
    "--bootstrap slurm: this is not inside a SLURM allocation (SLURM_JOB_ID and SLURM_JOB_NODELIST are not both set). "
    "Write ds-launch into a batch script (scripts/slurm/ has some) and submit it: sbatch SCRIPT; or make an allocation "
    "and type it there: salloc --nodes=2 --gpus-per-node=8";

std::string Variable(const SlurmWorld& world, const char* name) {
  const char* value = world.variable(name);
  return value ? value : "";
}

std::optional<int> IntegerOf(const std::string& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// In a batch script, or a shell of salloc, ds-launch runs once. Where srun started it as one of several tasks, as many
/// launchers would start as many jobs on the same nodes.
void CheckStep(const SlurmWorld& world) {
  const std::string size = Variable(world, "SLURM_HET_SIZE");
  if (!size.empty() && size != "1") {
    throw UsageError("a heterogeneous SLURM job (SLURM_HET_SIZE=" + size +
                     ") is not supported: its components have different nodes and variables. Submit one component, "
                     "with --nodes and --gpus-per-node for all of it");
  }
  if (Variable(world, "SLURM_STEP_ID").empty()) return;
  const std::optional<int> tasks = IntegerOf(Variable(world, "SLURM_STEP_NUM_TASKS"));
  if (tasks && *tasks > 1) {
    throw UsageError("ds-launch is one of " + std::to_string(*tasks) +
                     " tasks that srun started: each would start the whole job. Call it without srun in the batch "
                     "script (it calls srun itself), or by `srun --ntasks=1 --nodes=1 --overlap`; to have srun start "
                     "the workers, call `srun ds-worker JOB.yaml`");
  }
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    if (end > begin) lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

std::vector<std::string> NodesOf(const SlurmWorld& world, const std::string& nodelist) {
  const std::optional<int> expected = IntegerOf(Variable(world, "SLURM_JOB_NUM_NODES"));
  const auto fits = [&](const std::vector<std::string>& nodes) {
    return !nodes.empty() && (!expected || nodes.size() == static_cast<size_t>(*expected));
  };
  std::string reason;
  try {
    std::vector<std::string> nodes = ExpandNodeList(nodelist, "SLURM_JOB_NODELIST");
    if (fits(nodes)) return nodes;
    reason = "SLURM_JOB_NODELIST: `" + nodelist + "` has " + std::to_string(nodes.size()) +
             " nodes, and SLURM_JOB_NUM_NODES is " + Variable(world, "SLURM_JOB_NUM_NODES");
  } catch (const UsageError& error) {
    reason = error.what();
  }
  // A notation of a newer SLURM, perhaps: its own program knows it.
  if (const auto said = world.ask({"scontrol", "show", "hostnames", nodelist})) {
    std::vector<std::string> nodes = Lines(*said);
    if (fits(nodes)) return nodes;
    reason += "; `scontrol show hostnames` finds " + std::to_string(nodes.size());
  } else {
    reason += "; `scontrol show hostnames` did not answer either";
  }
  throw UsageError(reason + ". Leave these variables as SLURM sets them");
}

/// Counts for each node, from a variable like "2(x2),1"; none where there are none of the job.
std::vector<int> CountsOf(const SlurmWorld& world, const char* name, size_t nodes) {
  const std::string text = Variable(world, name);
  if (text.empty()) return {};
  std::vector<int> counts = ExpandCounts(text, name);
  if (counts.size() != nodes) {
    if (!Variable(world, "SLURM_STEP_ID").empty()) return {};  // the step's: srun set it over the job's
    throw UsageError(std::string(name) + ": `" + text + "` has counts for " + std::to_string(counts.size()) +
                     " nodes, and the allocation has " + std::to_string(nodes) +
                     ". Leave this variable as SLURM sets it");
  }
  return counts;
}

/// GPUs of each node, and where that is known from.
std::vector<int> GpusOf(const SlurmWorld& world, const std::vector<std::string>& nodes, std::string& from) {
  std::vector<int> gpus(nodes.size(), 0);
  const std::string here = Variable(world, "SLURM_GPUS_ON_NODE");
  std::vector<const char*> same_everywhere{"SLURM_GPUS_PER_NODE"};
  if (nodes.size() == 1) same_everywhere.push_back("SLURM_GPUS_ON_NODE");
  for (const char* name : same_everywhere) {
    const std::string text = Variable(world, name);
    if (text.empty()) continue;
    const int count = CountOfGpus(text);
    if (count < 0) throw UsageError(std::string(name) + ": expected a number of GPUs, got `" + text + "`");
    if (count > 0) from = name;
    return std::vector<int>(nodes.size(), count);
  }
  const auto said = world.ask({"scontrol", "--details", "show", "job", Variable(world, "SLURM_JOB_ID")});
  if (said) {
    for (const NodeGpus& node : GpusOfJobDetails(*said, "scontrol show job")) {
      const auto found = std::find(nodes.begin(), nodes.end(), node.node);
      if (found != nodes.end()) gpus[static_cast<size_t>(found - nodes.begin())] += node.gpus;
    }
    if (std::any_of(gpus.begin(), gpus.end(), [](int n) { return n > 0; })) from = "scontrol show job";
    return gpus;
  }
  if (const int count = CountOfGpus(here); count > 0) {  // of this node; each agent tells whether its node has as many
    from = "SLURM_GPUS_ON_NODE";
    std::fill(gpus.begin(), gpus.end(), count);
  }
  return gpus;
}

std::string JobIdOf(const SlurmWorld& world) {
  const std::string array = Variable(world, "SLURM_ARRAY_JOB_ID"), task = Variable(world, "SLURM_ARRAY_TASK_ID");
  return array.empty() || task.empty() ? Variable(world, "SLURM_JOB_ID") : array + "_" + task;
}

/// "2", or "1 to 4"
std::string RangeText(const std::vector<int>& counts) {
  const auto [least, most] = std::minmax_element(counts.begin(), counts.end());
  return std::to_string(*least) + (*least == *most ? "" : " to " + std::to_string(*most));
}

}  // namespace

SlurmWorld ThisSlurmWorld() {
  return {[](const char* name) { return std::getenv(name); },
          [](const std::vector<std::string>& argv) -> std::optional<std::string> {
            const auto begin = std::chrono::steady_clock::now();
            const std::optional<Captured> run = RunCaptured(argv, kAskSeconds);
            if (!run && std::chrono::steady_clock::now() - begin >= std::chrono::duration<double>(kAskSeconds)) {
              throw Error(ExitCode::preflight,
                          "SLURM does not answer: `" + Join(argv, " ") + "` had not ended after " +
                              DurationText(kAskSeconds) +
                              ", and srun would fare alike. Is munge running on this node (systemctl status munge), "
                              "and the controller reachable (scontrol ping)?");
            }
            if (!run || run->end.code != 0 || run->end.signal != 0) return std::nullopt;
            return run->out;
          }};
}

bool InSlurmAllocation(const SlurmWorld& world) {
  return !Variable(world, "SLURM_JOB_ID").empty() && !Variable(world, "SLURM_JOB_NODELIST").empty();
}

SlurmAllocation ReadSlurmAllocation(const SlurmWorld& world) {
  if (!InSlurmAllocation(world)) throw UsageError(kOutside);
  CheckStep(world);
  SlurmAllocation allocation;
  allocation.job_id = JobIdOf(world);
  allocation.nodelist = Variable(world, "SLURM_JOB_NODELIST");
  const std::vector<std::string> nodes = NodesOf(world, allocation.nodelist);
  std::string gpus_from;
  allocation.gpus = GpusOf(world, nodes, gpus_from);
  std::vector<int> tasks = CountsOf(world, "SLURM_TASKS_PER_NODE", nodes.size());
  // Where nobody asked for tasks SLURM fills in what would fit, with --exclusive one a CPU: that was not meant.
  const bool asked = !tasks.empty() && (world.variable("SLURM_NTASKS") || world.variable("SLURM_NPROCS") ||
                                        world.variable("SLURM_NTASKS_PER_NODE"));
  if (!asked) tasks.assign(nodes.size(), 1);
  std::vector<int> cpus = CountsOf(world, "SLURM_JOB_CPUS_PER_NODE", nodes.size());
  std::vector<int> counts;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const int gpus = allocation.gpus[i], count = gpus > 0 ? gpus : tasks[i];
    HostSlots host{nodes[i], "", {}};
    for (int slot = 0; slot < count; ++slot) host.slots.push_back(slot);
    allocation.hosts.push_back(std::move(host));
    allocation.limits.push_back(gpus > 0 ? gpus : std::max(tasks[i], cpus.empty() ? 0 : cpus[i]));
    counts.push_back(count);
  }
  allocation.slots_from = RangeText(counts) + (gpus_from.empty() ? " slots a node (" : " GPUs a node (") +
                          (!gpus_from.empty() ? gpus_from
                           : asked            ? "SLURM_TASKS_PER_NODE"
                                              : "neither GPUs nor --ntasks-per-node were asked for") +
                          ")";
  const std::string here = Variable(world, "SLURMD_NODENAME");
  if (std::find(nodes.begin(), nodes.end(), here) != nodes.end()) allocation.this_node = here;
  return allocation;
}

const SlurmAllocation& ThisSlurmAllocation() {
  static const SlurmAllocation allocation = ReadSlurmAllocation(ThisSlurmWorld());
  return allocation;
}

bool TakesSlurmAllocation(const std::string& bootstrap) {
  return bootstrap == "slurm" || (bootstrap == "auto" && InSlurmAllocation(ThisSlurmWorld()));
}

std::string RefusalOf(const SlurmAllocation& allocation, const HostSlots& host) {
  const std::string name = CanonicalHost(host.host);
  const auto found = std::find_if(allocation.hosts.begin(), allocation.hosts.end(),
                                  [&](const HostSlots& node) { return CanonicalHost(node.host) == name; });
  if (found == allocation.hosts.end()) {
    return "host " + host.host + " is not in SLURM's allocation " + allocation.job_id + " (" + allocation.nodelist +
           "): name nodes of the allocation, as SLURM does, or leave --hostfile out";
  }
  if (!host.user.empty()) {
    return "host " + host.user + "@" + host.host + ": SLURM starts agents as the allocation's user: leave `" +
           host.user + "@` out";
  }
  const auto at = static_cast<size_t>(found - allocation.hosts.begin());
  const int limit = allocation.limits[at];
  if (host.slots.empty() || host.slots.back() < limit) return "";
  return "host " + host.host + ": slot " + std::to_string(host.slots.back()) +
         " is asked for, and SLURM's allocation " + allocation.job_id + " has " + std::to_string(limit) +
         (allocation.gpus[at] > 0 ? " GPUs" : " CPUs") + " there: ask SLURM for more, or for fewer slots";
}

}  // namespace ds
