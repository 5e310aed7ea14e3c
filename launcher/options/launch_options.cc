#include "launcher/options/launch_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <map>

#include "launcher/options/arguments.h"
#include "launcher/options/foreign_flags.h"
#include "proto/version.h"
#include "runtime/base/error.h"
#include "runtime/base/standard_output.h"
#include "runtime/base/text.h"
#include "runtime/job/preflight_names.h"
#include "runtime/run/prepare.h"

namespace ds {
namespace {

constexpr char kDescription[] =
    "Trains a job on every slot of the hosts, or runs a program there.\n\n"
    "  ds-launch JOB.yaml                                 on this machine: its GPUs, else two CPU workers\n"
    "  ds-launch JOB.yaml --hostfile hosts                on the hosts of a file, one `HOST slots=N` a line\n"
    "  ds-launch JOB.yaml --set training.steps=100        with a key of the job file changed\n"
    "  ds-launch JOB.yaml --dry-run                       shows spec, ranks and plan; starts nothing\n"
    "  ds-launch JOB.yaml --resume auto                   goes on from the newest checkpoint\n"
    "  ds-launch --num-gpus 4 -- ./program ARGS...        starts a program with RANK, WORLD_SIZE, ... set\n"
    "  ds-launch --num-gpus 4 -- train.py ARGS...         a Python script\n";

constexpr char kFooter[] =
    "\nExit codes: 0 completed; 2 the command line, a file or the spec is wrong, or the plan does not fit; 3 a node\n"
    "failed its preflight or could not be reached; 4 a node or its agent was lost; 5 no progress; 75 workers lost "
    "their "
    "peers;\n127 a program could not be started; 128+n the first cause was signal n; otherwise the exit code of the "
    "program\nthat failed first, 1 also for trouble of ds-launch's own. docs/operations.md says more.\n";

/// Options that stand for a key of the spec, launch.NAME.
const std::vector<std::pair<std::string, std::string>> kKeyOptions = {
    {"--interface", "Network of control and data: an interface's name (eth0), an address or a network (10.0.0.0/24)"},
    {"--bind", "auto, cores or none: whether workers get cores and memory of their own, near their GPUs"},
    {"--agent", "ds-agent on the nodes: an absolute path, or a name for their PATH. Default: where ds-launch's own is"},
    {"--ssh-config", "A file for ssh -F (bootstrap ssh). Default: ssh's own files"},
    {"--ssh-port", "The port of sshd on the hosts (bootstrap ssh). Default: as ssh is configured"},
    {"--daemon-site", "The site identity's file (bootstrap daemon). Default: ~/.config/deepshard/site.yaml"},
    {"--daemon-port", "The port that daemons listen on (bootstrap daemon). Default: as the site's file says"},
};

std::string KeyOf(const std::string& flag) {
  std::string key = "launch." + flag.substr(2);
  std::replace(key.begin(), key.end(), '-', '_');
  return key;
}

constexpr int kMaxHosts = 65536;
constexpr int64_t kMaxRanks = 1 << 20;

int ParseCount(std::string_view text, const std::string& flag, int most = kMaxHosts) {
  int value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > most) {
    throw UsageError(flag + ": expected a number from 1 to " + std::to_string(most) + ", got `" + Shown(text) + "`");
  }
  return value;
}

std::pair<int, int> ParsePlanFor(const std::string& text) {
  size_t x = text.find('x');
  if (x == std::string::npos) throw UsageError("--plan-for " + text + ": expected NxM: nodes x slots, as in 8x4");
  int nodes = ParseCount(std::string_view(text).substr(0, x), "--plan-for " + text);
  int slots = ParseCount(std::string_view(text).substr(x + 1), "--plan-for " + text);
  if (static_cast<int64_t>(nodes) * slots > kMaxRanks) {
    throw UsageError("--plan-for " + text + ": more than " + std::to_string(kMaxRanks) + " ranks");
  }
  return {nodes, slots};
}

/// What people type who come from DeepSpeed or torchrun.
void CheckNoScript(const std::vector<std::string>& arguments, bool has_program) {
  for (const std::string& argument : arguments) {
    if (!has_program && !argument.starts_with('-') && argument.ends_with(".py")) {
      throw UsageError(argument + ": a program and its arguments go behind `--`: ds-launch [OPTIONS] -- " + argument +
                       " ARGS...");
    }
  }
}

/// Options that are about programs alone.
void CheckProgramOptions(const LaunchOptions& options) {
  if (options.module && options.no_python) throw UsageError("--module and --no-python exclude each other");
  if (!options.program.empty()) return;
  const char* flag = options.module                    ? "--module"
                     : options.no_python               ? "--no-python"
                     : !options.master_address.empty() ? "--master-addr"
                     : options.master_port != 0        ? "--master-port"
                                                       : nullptr;
  if (flag) throw UsageError(std::string(flag) + ": it is about programs (-- PROGRAM ARGS...); leave it out");
}

void CheckTogether(const LaunchOptions& options) {
  if (!options.make_identity.empty()) {
    if (!options.job_file.empty() || !options.program.empty())
      throw UsageError("--make-identity makes files and starts nothing: leave the job out");
    if (options.hostfile.empty())
      throw UsageError("--make-identity " + options.make_identity +
                       ": for which hosts? Add --hostfile HOSTS: each gets a certificate of its own");
    return;
  }
  if (options.job_file.empty() && options.program.empty()) {
    throw UsageError(
        "what shall run? Give a job file (ds-launch JOB.yaml) or a program (ds-launch -- PROGRAM ARGS...)");
  }
  if (!options.job_file.empty() && !options.program.empty()) {
    throw UsageError("both a job file (" + options.job_file + ") and a program (" + options.program[0] +
                     ") are given: one of them");
  }
  if (options.plan_for && !options.dry_run) throw UsageError("--plan-for plans without running: add --dry-run");
  if (options.plan_for && !options.program.empty()) throw UsageError("--plan-for: a program has no plan");
  if (options.plan_for && !options.hostfile.empty()) {
    throw UsageError("--plan-for stands in for the hosts: leave --hostfile out");
  }
  if (!options.program.empty() && !options.machine.empty()) {
    throw UsageError("--machine " + options.machine + ": a program has no plan to price; leave it out");
  }
  if (!options.program.empty() && options.resume != "never") {
    throw UsageError("--resume " + options.resume + ": a program's checkpoints are its own; pass it its own option");
  }
  CheckProgramOptions(options);
  const std::string& address = options.master_address;
  if (!std::all_of(address.begin(), address.end(), [](char c) { return c > ' ' && c < '\x7f'; })) {
    throw UsageError("--master-addr " + Shown(address) +
                     ": a name or an address is wanted, of printable ASCII without blanks");
  }
  if (address.starts_with('-')) throw UsageError("--master-addr " + address + ": it begins with `-`");
  if (options.output.empty()) throw UsageError("--output: expected a folder, got nothing");
  if (options.resume.empty()) throw UsageError("--resume: expected auto, never or a path, got nothing");
}

}  // namespace

CommandLine ParseLaunchCommandLine(int argc, char** argv) {
  LaunchOptions options;
  std::vector<std::string> arguments = NormalisedArguments(argc, argv);
  auto separator = std::find(arguments.begin(), arguments.end(), "--");
  bool has_program = separator != arguments.end();
  if (has_program) options.program.assign(separator + 1, arguments.end());
  arguments.erase(separator, arguments.end());
  if (has_program && options.program.empty()) throw UsageError("no program after `--`");
  if (has_program && options.program[0].empty()) throw UsageError("the program after `--` has an empty name");
  if (has_program && options.program[0][0] == '-')
    throw UsageError(
        "-- " + Shown(options.program[0]) +
        ": no program's name begins with `-`; options of ds-launch go before `--`, and a program of such a "
        "name is written ./" +
        Shown(options.program[0]));
  CheckNoScript(arguments, has_program);

  CLI::App app(kDescription, "ds-launch");
  app.footer(kFooter);
  std::vector<std::string> overrides, skip_checks;
  std::string num_nodes, num_gpus, plan_for, master_port;
  bool version = false, no_local_rank = false;
  app.add_option("JOB.yaml", options.job_file, "The job spec (docs/job-spec.md)");
  app.add_option("-H,--hostfile", options.hostfile,
                 "Hosts, one a line: HOST slots=N. Default: this machine; inside a SLURM allocation, its nodes");
  app.add_option("-i,--include", options.filter.include, "Only these: NAME[:SLOT[,SLOT...]][@NAME...]");
  app.add_option("-e,--exclude", options.filter.exclude, "All but these, written likewise");
  app.add_option("--num-nodes,--nnodes", num_nodes, "Only the first N hosts");
  app.add_option("--num-gpus,--num-accelerators,--nproc-per-node", num_gpus,
                 "Only the first N slots of each host; without a hostfile, N workers here");
  app.add_option("--bootstrap", options.bootstrap,
                 "How agents are brought up: auto, local, ssh, slurm, mpi or daemon. Default: the spec's");
  std::map<std::string, std::string> key_options;  // by the flag
  for (const auto& [flag, meaning] : kKeyOptions) app.add_option(flag, key_options[flag], meaning);
  app.add_option("--set", overrides, "KEY=VALUE: changes a key of the job file; KEY dotted, VALUE YAML; later wins")
      ->allow_extra_args(false);
  app.add_option("--export", options.exports,
                 "NAME or NAME=VALUE: a variable for the workers, byte for byte, here or with this value")
      ->allow_extra_args(false);
  app.add_option("--output", options.output, "Where run directories go: OUTPUT/NAME/RUN-ID")->capture_default_str();
  app.add_option("--resume", options.resume,
                 "never; auto: the newest complete checkpoint under OUTPUT/NAME; PATH: a checkpoint or run directory")
      ->capture_default_str();
  app.add_option("--skip-check", skip_checks,
                 "NAME[,NAME...]: checks of the preflight that are not made: " + CheckNameList())
      ->allow_extra_args(false);
  app.add_flag("--dry-run", options.dry_run, "Show the resolved spec, the ranks, the agents' command and the plan");
  app.add_option("--plan-for", plan_for, "NxM: with --dry-run, plan for N nodes of M slots that need not exist");
  app.add_option(
      "--machine", options.machine,
      "A machine file (ds-bench writes it): prices the plan, chooses algorithms of matrix products, gives mfu");
  app.add_flag("-m,--module", options.module, "PROGRAM is a Python module: python3 -u -m PROGRAM");
  app.add_flag("--no-python", options.no_python, "Execute a PROGRAM ending in .py as it is, without python3 -u");
  app.add_option("--master-addr", options.master_address, "MASTER_ADDR of programs. Default: the first node's");
  app.add_option("--master-port", master_port,
                 "MASTER_PORT of programs. Default: a free one, held by the first node's agent");
  app.add_flag("--no-local-rank", no_local_rank,
               "As it always is: programs get LOCAL_RANK, and no argument --local_rank");
  app.add_option("--tee", options.tee,
                 "Ranks whose lines the screen shows: all, none, or as in 0,4-7. Default: all. Logs have them anyway");
  app.add_option("--log-ranks", options.log_ranks, "Ranks that have a log, logs/rank-N.log, written likewise");
  app.add_option("--make-identity", options.make_identity,
                 "DIR: write a site identity there for daemons on the hosts of --hostfile, or add to it and renew it");
  app.add_flag("--version", version, "Print the version");
  RefuseForeignFlags(app, arguments);
  if (ParseArguments(app, std::move(arguments))) return {};
  if (version) {
    std::printf("ds-launch %s (protocol %u)\n", BuildVersion(), kProtocolVersion);
    FlushStandardOutput();
    return {};
  }
  for (const auto& [flag, text] : {std::pair("--tee", &options.tee), std::pair("--log-ranks", &options.log_ranks)}) {
    if (app.count(flag) > 0 && text->empty())
      throw UsageError(std::string(flag) + ": expected all, none, or ranks as in 0,4-7");
  }
  if (app.count("--make-identity") > 0 && options.make_identity.empty())
    throw UsageError("--make-identity: an empty name; write a folder's");
  if (app.count("--machine") > 0 && options.machine.empty())
    throw UsageError("--machine: an empty name; write a machine file's path, or leave the option out");
  for (const auto& [flag, meaning] : kKeyOptions) {
    if (app.count(flag) == 0) continue;
    std::string value = key_options[flag];
    if (flag == "--ssh-config" || flag == "--daemon-site") value = std::filesystem::absolute(value).string();
    if (flag.ends_with("-port")) ParseCount(value, flag, 65535);  // 0 is what leaving it out means
    options.key_options.push_back({flag, KeyOf(flag), value});
  }
  for (const std::string& text : overrides) options.overrides.push_back(ParseOverride(text));
  if (!num_nodes.empty()) options.filter.num_nodes = ParseCount(num_nodes, "--num-nodes");
  if (!num_gpus.empty()) options.filter.num_gpus = ParseCount(num_gpus, "--num-gpus");
  if (!master_port.empty()) options.master_port = ParseCount(master_port, "--master-port", 65535);
  if (!plan_for.empty()) options.plan_for = ParsePlanFor(plan_for);
  for (const std::string& names : skip_checks) {
    try {
      AddCheckNames(names, options.skip_checks);
    } catch (const UsageError& error) {
      throw UsageError("--skip-check " + names + ": " + error.what());
    }
  }
  CheckTogether(options);
  return {options};
}

}  // namespace ds
