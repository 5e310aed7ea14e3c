// Plans and the dry run.
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "launcher/bootstrap/bootstrap.h"
#include "launcher/bootstrap/choose.h"
#include "launcher/control/network.h"
#include "launcher/job/bind.h"
#include "launcher/job/job.h"
#include "runtime/base/error.h"
#include "runtime/base/nvml.h"
#include "runtime/base/text.h"
#include "runtime/plan/machine_match.h"
#include "runtime/run/prepare.h"

namespace ds {
namespace {

std::string RankTable(const Job& job) {
  std::string text = "Ranks\n  rank  local  slot  host\n";
  for (const RankEntry& rank : job.ranks) {
    char line[64];
    std::snprintf(line, sizeof line, "  %4d  %5d  %4d  ", rank.rank, rank.local_rank, rank.slot);
    text += line + job.hosts[static_cast<size_t>(rank.node)].host + "\n";
  }
  return text;
}

/// An argument so that a shell would read it back.
std::string Quoted(const std::string& argument) {
  if (!argument.empty() && argument.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                                      "-_./=:,@%+") == std::string::npos) {
    return argument;
  }
  std::string text = "'";
  for (char c : argument) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

std::string CommandText(const std::vector<std::string>& argv) {
  std::vector<std::string> quoted;
  for (const std::string& argument : argv) quoted.push_back(Quoted(argument));
  return Join(quoted, " ");
}

std::string AgentTable(const Job& job) {
  if (job.options.plan_for) return "";
  const BootstrapChoice choice = ChooseBootstrap(job.bootstrap(), job.hosts);
  std::unique_ptr<Bootstrap> bootstrap = MakeBootstrap(choice.kind, BootstrapSettingsOf(job), [](AgentEnded) {});
  std::string text = "Agents: bootstrap " + choice.Text() + "; credentials go over " +
                     (choice.kind == "daemon" ? "mutual TLS by the site identity" : "standard input") + "\n";
  for (const HostSlots& host : job.hosts) {
    if (std::string refusal = bootstrap->Refusal(host); !refusal.empty()) throw UsageError(refusal);
  }
  const std::string& interface = job.spec.launch.interface;
  if (!bootstrap->OnThisMachine() || interface != "auto") {
    const LaunchNetwork network = ChooseNetwork(bootstrap->OnThisMachine(), job.hosts, interface,
                                                [&](const HostSlots& host) { return bootstrap->NetworkName(host); });
    text += "  dial ds-launch at " + network.Reach() + " (" + network.reason + "); data goes over " +
            (interface == "auto" ? "the interface that they dial from" : "launch.interface " + interface) + "\n";
  }
  for (const BootstrapCommand& command : bootstrap->Commands(job.hosts)) {
    text += "  " + command.host + ": " + CommandText(command.argv) + "\n";
  }
  return text + "\n";
}

std::string Indented(const std::string& text) {
  std::string result;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = std::min(text.find('\n', begin), text.size());
    result += "  " + text.substr(begin, end - begin) + "\n";
    begin = end + 1;
  }
  return result;
}

/// What plans are priced with.
std::string MachineText(const Job& job, DeviceKind device) {
  const MachineFile& file = *job.machine;
  std::string text = "Machine\n  " + job.machine_from + ": " + file.device.name + ", measured on " + file.host +
                     " at " + file.written + "\n";
  // Nodes are not asked: their devices' names are not known.
  const std::string mismatch = MachineMismatch(file, device, file.device.name);
  if (!mismatch.empty()) text += "  " + mismatch + "\n";
  if (!job.machine_changed.empty()) text += "  " + job.machine_changed + "\n";
  return text + "\n";
}

/// For one rank, where every host is this machine. Its GPUs are not asked.
TierRoom RoomHere(const Job& job, DeviceKind device) {
  if (job.options.plan_for) return {};
  const int64_t memory = static_cast<int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE) / job.world();
  return device == DeviceKind::cpu ? TierRoom(memory) : TierRoom(0, memory);
}

}  // namespace

PlannedRoles PlanRoles(const Job& job, const TierRoom& room, DeviceKind device) {
  if (job.foreign()) return {job.spec, {}, {}};
  PlannedJob planned = PlanJob(job.spec, job.world(), job.machine, job.machine_from, room, device);
  return {std::move(planned.spec), std::move(planned.placement), std::move(planned.plans)};
}

std::string DescribeJob(const Job& job) {
  std::string text = "Job " + job.spec.name + ": " + Count(job.world(), "rank") + " on " +
                     Count(static_cast<int64_t>(job.Nodes().size()), "node") +
                     (job.Nodes().size() < job.hosts.size()
                          ? ", " + std::to_string(job.hosts.size() - job.Nodes().size()) + " spare (launch.min_nodes)"
                          : "") +
                     "\n\n";
  if (job.foreign()) text += "Program\n  " + CommandText(job.program) + "\n\n";
  text += RankTable(job) + "\n" + AgentTable(job);
  text += DescribeVariables(job.variable_sources, job.foreign()) + "\n" + DescribeBind(job) + "\n";
  if (!job.resume.empty()) text += "Resumes from\n  " + job.resume + "\n\n";
  if (job.foreign()) return text;
  const DeviceKind device = DeviceExpected(job);
  std::vector<std::string> notes = job.spec.notes;
  if (device == DeviceKind::cuda && !job.spec.memory.device_limit)
    notes.push_back(std::string("The plan was not checked against a GPU's memory") +
                    (VisibleGpus().empty() ? ", and this machine has no GPU" : "") +
                    ": the nodes are looked at when the job starts; memory.device_limit sets a limit here.");
  if (!notes.empty()) text += "Notes\n";
  for (const std::string& note : notes) text += "  " + note + "\n";
  if (!notes.empty()) text += "\n";
  if (job.machine) text += MachineText(job, device);
  const PlannedRoles planned = PlanRoles(job, RoomHere(job, device), device);
  if (!planned.placement.empty())
    text += "Placement (by this machine's memory; a run asks its nodes)\n" + Indented(Join(planned.placement, "\n")) +
            "\n\n";
  text += "Resolved spec\n" + Indented(ToYaml(job.spec)) + "\n";
  for (const auto& [rank, plan] : planned.plans) {
    text += "Plan of rank " + std::to_string(rank) +
            (job.world() == 1                 ? ""
             : job.spec.parallel.pipeline > 1 ? " (of its stage every rank's but for its number)"
                                              : " (every rank's but for its number)") +
            "\n" + Indented(plan);
  }
  return text;
}

}  // namespace ds
