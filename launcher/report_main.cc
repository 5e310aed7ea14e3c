// ds-report: what each node has, and where nodes differ.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "launcher/agents.h"
#include "launcher/arguments.h"
#include "launcher/bootstrap/slurm_allocation.h"
#include "launcher/node_report.h"
#include "proto/channel.h"
#include "proto/version.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/job/filter.h"
#include "runtime/job/hostfile.h"

namespace ds {
namespace {

struct ReportOptions {
  std::string hostfile, bootstrap = "auto";
  BootstrapSettings settings;
  HostFilter filter;
  bool json = false;
};

std::vector<NodeReport> Collect(const ReportOptions& options) {
  std::vector<HostSlots> hosts{{"localhost", "", {0}}};
  if (!options.hostfile.empty()) {
    hosts = ApplyFilters(LoadHostfile(options.hostfile), options.filter);
  } else if (TakesSlurmAllocation(options.bootstrap)) {
    hosts = ThisSlurmAllocation().hosts;
  }
  Agents::Options settings;
  settings.bootstrap = options.bootstrap;
  settings.settings = options.settings;
  settings.hosts = hosts;
  Agents agents(settings);
  if (std::optional<Cause> trouble = agents.BringUp()) {
    throw Error(static_cast<ExitCode>(trouble->signal != 0 ? 128 + trouble->signal : trouble->code), trouble->message);
  }
  std::vector<NodeReport> reports;
  for (uint32_t node = 0; node < hosts.size(); ++node) {
    reports.push_back({hosts[node].host, agents.facts()[node], agents.clock_offsets()[node]});
  }
  return reports;
}

void Print(const ReportOptions& options, const std::vector<NodeReport>& reports) {
  if (options.json) {
    for (const NodeReport& report : reports) std::printf("%s\n", ToJson(report).c_str());
    return;
  }
  std::printf("ds-report %s (protocol %u)\n", BuildVersion(), kProtocolVersion);
  for (const NodeReport& report : reports) std::printf("\n%s", ToText(report).c_str());
  if (reports.size() < 2) return;
  std::vector<std::string> differences = Differences(reports);
  std::printf("\n%s\n", differences.empty() ? "The nodes do not differ." : "The nodes differ:");
  for (const std::string& line : differences) std::printf("  %s\n", line.c_str());
}

int Main(int argc, char** argv) {
  CLI::App app("What each node has (processor, memory, GPUs, limits, disks, clock), and where nodes differ.",
               "ds-report");
  ReportOptions options;
  bool version = false;
  app.add_option(
      "-H,--hostfile", options.hostfile,
      "Hosts to look at, one a line: HOST slots=N. Default: this machine; inside a SLURM allocation, its nodes");
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
  app.add_flag("--json", options.json, "One JSON object a node, a line each");
  app.add_flag("--version", version, "Print the version");
  if (std::optional<int> code = ParseArguments(app, NormalisedArguments(argc, argv))) return *code;
  if (version) {
    std::printf("ds-report %s (protocol %u)\n", BuildVersion(), kProtocolVersion);
    return 0;
  }
  Print(options, Collect(options));
  return 0;
}

}  // namespace
}  // namespace ds

int main(int argc, char** argv) {
  ds::PrepareGrpc();
  try {
    return ds::Main(argc, argv);
  } catch (const ds::Error& error) {
    ds::LogError(error.what());
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    ds::LogError(error.what());
    return 1;
  }
}
