// ds-report: what each node has, and where nodes differ.
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "launcher/bootstrap/slurm_allocation.h"
#include "launcher/control/agents.h"
#include "launcher/nodes/data_network.h"
#include "launcher/nodes/node_report.h"
#include "launcher/nodes/preflight.h"
#include "launcher/nodes/reachability.h"
#include "launcher/options/arguments.h"
#include "proto/channel.h"
#include "proto/version.h"
#include "runtime/base/end_within.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/base/secret.h"
#include "runtime/base/standard_output.h"
#include "runtime/base/start_limits.h"
#include "runtime/base/terminal.h"
#include "runtime/base/text.h"
#include "runtime/job/filter.h"
#include "runtime/job/hostfile.h"
#include "runtime/job/preflight_names.h"

constexpr double kEndSeconds = 5;  // after the last line: gRPC may not come to an end

namespace ds {
namespace {

struct ReportOptions {
  std::string hostfile, bootstrap = "auto";
  BootstrapSettings settings;
  HostFilter filter;
  std::vector<std::string> skip_checks;
  std::string contain = "auto", interface = "auto";
  bool json = false;
};

struct Findings {
  std::vector<HostSlots> hosts;
  std::vector<NodeReport> reports;
  std::vector<std::vector<CheckResult>> checks;
  bool failed = false;
};

/// Hosts that did not answer are told, each; the rest is not looked at then.
void Tell(const Agents& agents, const Cause& trouble) {
  std::vector<std::string> messages;
  for (const Cause& found : agents.troubles()) messages.push_back(found.message);
  if (trouble.kind == "signal" || messages.empty()) messages = {trouble.message};
  throw Error(static_cast<ExitCode>(trouble.signal != 0 ? 128 + trouble.signal : trouble.code), Join(messages, "\n"));
}

/// `kept`: the agents, for the caller to end once all is said.
Findings Collect(const ReportOptions& options, std::unique_ptr<Agents>& kept) {
  Findings found;
  found.hosts = {{"localhost", "", {0}}};
  if (!options.hostfile.empty()) {
    found.hosts = ApplyFilters(LoadHostfile(options.hostfile), options.filter);
  } else if (TakesSlurmAllocation(options.bootstrap)) {
    found.hosts = ThisSlurmAllocation().hosts;
  }
  Agents::Options settings;
  settings.bootstrap = options.bootstrap;
  settings.settings = options.settings;
  settings.hosts = found.hosts;
  settings.skip_checks = options.skip_checks;
  settings.contain = options.contain;
  settings.interface = options.interface;
  settings.look_closer = true;
  CheckStartLimits("ds-report");
  kept = std::make_unique<Agents>(settings);
  Agents& agents = *kept;
  if (std::optional<Cause> trouble = agents.BringUp()) Tell(agents, *trouble);
  PreflightNeeds needs;
  needs.skip = options.skip_checks;
  if (!options.hostfile.empty() || found.hosts.size() > 1) {  // what a job on all of these slots would need
    needs.foreign = false;
    for (const HostSlots& host : found.hosts) needs.world += static_cast<int>(host.slots.size());
  }
  ProbeResults probed;
  const bool probe = std::find(needs.skip.begin(), needs.skip.end(), "reachability") == needs.skip.end();
  const DataNetwork network = ChooseDataNetwork(found.hosts, agents.facts(), options.interface, agents.OnThisMachine());
  if (!network.troubles.empty())
    probed.outcomes = OutcomesOf(network, found.hosts);
  else if (probe && found.hosts.size() > 1)
    probed = ProbeNodes(agents, found.hosts.size(), [&](uint32_t node) { return network.nodes[node].address; });
  if (probed.cause) Tell(agents, *probed.cause);
  found.checks = JudgeNodes(found.hosts, agents.facts(), agents.clock_offsets(), probed.outcomes, needs);
  for (uint32_t node = 0; node < found.hosts.size(); ++node) {
    found.reports.push_back(
        {found.hosts[node].host, agents.facts()[node], agents.clock_offsets()[node], "", found.checks[node]});
    for (const CheckResult& check : found.checks[node])
      found.failed = found.failed || check.status == CheckStatus::failed;
  }
  return found;
}

void Print(const ReportOptions& options, const Findings& found) {
  const std::vector<NodeReport>& reports = found.reports;
  if (options.json) {
    for (const NodeReport& report : reports) std::printf("%s\n", ToJson(report).c_str());
    return;
  }
  const bool terminal = IsTerminal(STDOUT_FILENO);
  const char* no_color = std::getenv("NO_COLOR");
  const size_t columns = terminal ? static_cast<size_t>(TerminalColumns(STDOUT_FILENO)) : 120;
  std::printf("ds-report %s (protocol %u): %zu node%s\n\n%s", BuildVersion(), kProtocolVersion, reports.size(),
              reports.size() == 1 ? "" : "s", ToTable(reports, columns, terminal && !(no_color && *no_color)).c_str());
  if (reports.size() > 1)
    std::printf("\n%s\n",
                Differences(reports).empty() ? "The nodes do not differ." : "The nodes differ where marked *.");
  const std::vector<std::string> lines = PreflightLines(found.hosts, found.checks);
  if (!lines.empty()) std::printf("\n");
  for (const std::string& line : lines) std::printf("%s\n", line.c_str());
}

int Main(int argc, char** argv, std::unique_ptr<Agents>& agents) {
  CLI::App app(
      "What each node has (processor, memory, GPUs, limits, disks, clock), where nodes differ, and the preflight of\n"
      "a job on them, each check with its time. Exit code 3: a check failed, or a host could not be reached.",
      "ds-report");
  ReportOptions options;
  bool version = false;
  std::vector<std::string> skip_checks;
  app.add_option("-H,--hostfile", options.hostfile,
                 "Hosts to look at, one a line: HOST slots=N. Default: this machine");
  app.add_option("-i,--include", options.filter.include, "Only these hosts: NAME[@NAME...]")->needs("--hostfile");
  app.add_option("-e,--exclude", options.filter.exclude, "All but these hosts: NAME[@NAME...]")->needs("--hostfile");
  app.add_option("--bootstrap", options.bootstrap, "How agents are brought up: auto, local, ssh, slurm, mpi or daemon");
  app.add_option(
      "--agent", options.settings.agent,
      "ds-agent on the nodes: an absolute path, or a name for their PATH. Default: where ds-report's own is");
  app.add_option("--ssh-config", options.settings.ssh_config,
                 "A file for ssh -F (bootstrap ssh). Default: ssh's own files");
  app.add_option("--ssh-port", options.settings.ssh_port,
                 "The port of sshd on the hosts (bootstrap ssh). Default: as ssh is configured")
      ->check(CLI::Range(1, 65535));
  app.add_option("--daemon-site", options.settings.daemon_site,
                 "The site identity's file (bootstrap daemon). Default: ~/.config/deepshard/site.yaml");
  app.add_option("--daemon-port", options.settings.daemon_port,
                 "The port that daemons listen on (bootstrap daemon). Default: as the site's file says")
      ->check(CLI::Range(1, 65535));
  app.add_option("--skip-check", skip_checks, "NAME[,NAME...]: checks that are not made: " + CheckNameList())
      ->allow_extra_args(false);
  app.add_option(
      "--interface", options.interface,
      "Network of control and data connections, as launch.interface says it: a name, an address or a network");
  app.add_option("--contain", options.contain,
                 "What the agents are contained with, as launch.contain says it: auto, cgroup, namespace, process");
  app.add_flag("--json", options.json, "One JSON object a node, a line each");
  app.add_flag("--version", version, "Print the version");
  if (std::optional<int> code = ParseArguments(app, NormalisedArguments(argc, argv))) return *code;
  if (version) {
    std::printf("ds-report %s (protocol %u)\n", BuildVersion(), kProtocolVersion);
    FlushStandardOutput();
    return 0;
  }
  for (const std::string& names : skip_checks) {
    try {
      AddCheckNames(names, options.skip_checks);
    } catch (const UsageError& error) {
      throw UsageError("--skip-check " + names + ": " + error.what());
    }
  }
  if (!IsContainMode(options.contain))
    throw UsageError("--contain " + options.contain + ": expected auto, cgroup, namespace or process");
  const Findings found = Collect(options, agents);
  Print(options, found);
  FlushStandardOutput();
  return found.failed ? static_cast<int>(ExitCode::preflight) : 0;
}

}  // namespace
}  // namespace ds

int main(int argc, char** argv) {
  ds::PrepareGrpc();
  ds::KeepMemoryPrivate();
  ::signal(SIGPIPE, SIG_IGN);  // `| head` ends nothing
  std::unique_ptr<ds::Agents> agents;
  int code = 1;
  try {
    code = ds::Main(argc, argv, agents);
  } catch (const ds::Error& error) {
    ds::LogError(error.what());
    code = static_cast<int>(error.code());
  } catch (const std::exception& error) {
    ds::LogError(error.what());
  }
  if (!agents) return code;
  agents->EndAll();
  ds::EndWithin(kEndSeconds, code);
  agents.reset();
  return code;
}
