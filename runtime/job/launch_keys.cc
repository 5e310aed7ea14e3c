#include "runtime/job/key_sections.h"

#include "runtime/base/interface.h"
#include "runtime/job/key_rows.h"
#include "runtime/job/preflight_names.h"

namespace ds {

using namespace key_rows;

namespace {

std::string ReadBootstrap(const Value& value) {
  static const std::vector<std::string> names = {"auto", "local", "ssh", "slurm", "mpi", "daemon"};
  for (const std::string& name : names) {
    if (Lower(AsString(value)) == name) return name;
  }
  throw ValueError(value, "not one of the choices; write one of " + Join(names, ", "));
}

std::string ReadInterface(const Value& value) {
  const std::string& text = AsString(value);
  if (const std::string trouble = InterfaceTextTrouble(text); !trouble.empty()) {
    throw ValueError(value,
                     trouble + "; write auto, a name such as eth0, an address, or a network such as 10.0.0.0/24");
  }
  return text;
}

std::string ReadAgentProgram(const Value& value) {
  const std::string& path = AsString(value);
  if (path.find('\0') != std::string::npos || path.empty() || path[0] == '-' ||
      (path[0] != '/' && path.find('/') != std::string::npos)) {
    throw ValueError(value,
                     "neither an absolute path nor a name; write /PATH/ds-agent, or a name that is in the nodes' PATH");
  }
  return path;
}

std::string ReadAbsolutePath(const Value& value) {
  const std::string& path = AsString(value);
  if (path != "auto" && (path.empty() || path[0] != '/')) throw ValueError(value, "write auto or an absolute path");
  return path;
}

constexpr int64_t kMostRestarts = int64_t{1} << 53;

RestartBudgets ReadRestarts(const Value& value) {
  RestartBudgets budgets;
  if (value.kind == Value::Kind::scalar) {
    budgets.any = ReadInteger(value, 0, kMostRestarts);
    return budgets;
  }
  if (value.kind != Value::Kind::map)
    throw ValueError(value, "write a number, or {worker: N, node: N, no_progress: N}, not " + Describe(value));
  budgets.by_cause = true;
  for (const auto& [name, field] : value.fields) {
    if (name.starts_with("_")) continue;
    if (name == "worker")
      budgets.worker = ReadInteger(field, 0, kMostRestarts);
    else if (name == "no_progress")
      budgets.no_progress = ReadInteger(field, 0, kMostRestarts);
    else if (name == "node")
      budgets.node = ReadInteger(field, 0, kMostRestarts);
    else
      throw ValueError(field, "`" + Shown(name) + "` is no cause of a restart; write worker, node or no_progress");
  }
  return budgets;
}

Key RestartsKey() {
  return Row(
      "launch.restarts", "whole number, 0 or more, or {worker: N, node: N, no_progress: N}", nullptr,
      "times that a failed job starts again from its newest checkpoint: for any cause, or a budget a cause (node: with "
      "launch.min_nodes, else as often as that allows)",
      [](JobSpec& spec, const Value& value) { spec.launch.restarts = ReadRestarts(value); },
      [](const JobSpec& spec) {
        const RestartBudgets& budgets = spec.launch.restarts;
        if (!budgets.by_cause) return std::to_string(budgets.any);
        return "{worker: " + std::to_string(budgets.worker) +
               (budgets.node ? ", node: " + std::to_string(*budgets.node) : "") +
               ", no_progress: " + std::to_string(budgets.no_progress) + "}";
      });
}

Key MinNodesKey() {
  return Row(
      "launch.min_nodes", "all, or whole number, 1 or more", nullptr,
      "nodes that a job needs: after a lost node it goes on with those left, at the same global batch "
      "(docs/operations.md)",
      [](JobSpec& spec, const Value& value) {
        spec.launch.min_nodes.reset();
        if (value.kind == Value::Kind::scalar && Lower(value.text) == "all") return;
        spec.launch.min_nodes = ReadInteger(value, 1, 1 << 20);
      },
      [](const JobSpec& spec) {
        return spec.launch.min_nodes ? std::to_string(*spec.launch.min_nodes) : std::string("all");
      });
}

Key LogRotateKey() {
  return Row(
      "launch.log_rotate", "bytes, or with a unit: `64MiB`; none", "1GiB",
      "a rank's log that would grow beyond this is renamed to rank-N.log.1, the one before it to .2, and so on",
      [](JobSpec& spec, const Value& value) {
        spec.launch.log_rotate = 0;
        if (value.kind == Value::Kind::scalar && Lower(value.text) == "none") return;
        spec.launch.log_rotate = AsBytes(value);
        if (spec.launch.log_rotate < 4096) throw ValueError(value, "too small for a log; write 4KiB or more, or none");
      },
      [](const JobSpec& spec) {
        return spec.launch.log_rotate == 0 ? std::string("none") : std::to_string(spec.launch.log_rotate);
      });
}

Key EnvKey() {
  return Row(
      "launch.env", "names and values", nullptr,
      "environment of the workers, handed over byte for byte (here a name may begin with `_`)",
      [](JobSpec& spec, const Value& value) {
        if (value.kind != Value::Kind::map) throw ValueError(value, "write NAME: VALUE lines, not " + Describe(value));
        spec.launch.env.clear();
        for (const auto& [name, field] : value.fields) {
          const std::string& text = AsString(field);
          if (name.empty() || name.find('=') != std::string::npos || name.find('\0') != std::string::npos) {
            throw ValueError(field, "its name is empty or has '='; write NAME: VALUE");
          }
          if (text.find('\0') != std::string::npos) throw ValueError(field, "a zero byte in a variable; remove it");
          spec.launch.env.emplace_back(name, text);
        }
      },
      [](const JobSpec& spec) {
        std::vector<std::string> fields;
        for (const auto& [name, value] : spec.launch.env) fields.push_back(YamlScalar(name) + ": " + JsonString(value));
        return "{" + Join(fields, ", ") + "}";
      });
}

Key SkipChecksKey() {
  return Row(
      "launch.skip_checks", "a name or a list of names", nullptr,
      "checks of the preflight that are not made (docs/operations.md lists them); `--skip-check` adds to them",
      [](JobSpec& spec, const Value& value) {
        spec.launch.skip_checks.clear();
        const auto add = [&](const Value& item) {
          try {
            AddCheckNames(AsString(item), spec.launch.skip_checks);
          } catch (const UsageError& error) {
            throw ValueError(item, error.what());
          }
        };
        if (value.kind != Value::Kind::list) return add(value);
        for (const Value& item : value.items) add(item);
      },
      [](const JobSpec& spec) { return "[" + Join(spec.launch.skip_checks, ", ") + "]"; });
}

std::string ReadContain(const Value& value) {
  const std::string name = Lower(AsString(value));
  if (!IsContainMode(name)) throw ValueError(value, "expected auto, cgroup, namespace or process");
  return name;
}

}  // namespace

std::vector<Key> LaunchKeys() {
  return {
      Text("launch.bootstrap", "auto, local, ssh, slurm, mpi, daemon", DS_KEY_FIELD(launch.bootstrap), ReadBootstrap,
           nullptr, "how agents are reached; `--bootstrap` wins"),
      RestartsKey(),
      MinNodesKey(),
      EnvKey(),
      Number(
          "launch.grace_seconds", "number, 0.1 or more", DS_KEY_FIELD(launch.grace_seconds),
          [](const Value& value) { return ReadWait(value, 0.1, "processes need a moment to end in"); }, nullptr,
          "time to end in after a signal, before SIGKILL (after a failure our own workers get 5 s)"),
      Number(
          "launch.lease_seconds", "number, 2 or more", DS_KEY_FIELD(launch.lease_seconds),
          [](const Value& value) {
            return ReadWait(value, 2, "agents and ds-launch speak once a second, so that every node would be lost");
          },
          nullptr, "a node that is silent for so long is lost, and so is a launcher to its agents"),
      Number(
          "launch.suspect_seconds", "number, 1 or more", DS_KEY_FIELD(launch.suspect_seconds),
          [](const Value& value) { return ReadWait(value, 1, "agents speak once a second"); }, nullptr,
          "an agent that is silent though its machine answers is suspected after 3 s, and lost so much later; at most "
          "lease_seconds, which it is where that is less than 20 and this is not written"),
      Number(
          "launch.progress_seconds", "number, 0 or more", DS_KEY_FIELD(launch.progress_seconds),
          [](const Value& value) { return ReadNumber(value, 0, 1e9); }, nullptr,
          "no step for so long ends the job; 0: never"),
      Number(
          "launch.join_seconds", "number, 1 or more", DS_KEY_FIELD(launch.join_seconds),
          [](const Value& value) {
            return ReadWait(value, 1, "agents need a moment to start, so that none would join");
          },
          nullptr, "time for all agents to be brought up and to join; more for many hosts or slow logins"),
      Choice(
          "launch.bind", DS_KEY_FIELD(launch.bind), kBindNames, nullptr,
          "workers get cores and memory near their GPU, or a share of their node; auto: on nodes with several workers "
          "and two cores or more for each; `--bind` wins"),
      Number(
          "launch.log_lines_per_second", "number, 0 or more", DS_KEY_FIELD(launch.log_lines_per_second),
          [](const Value& value) { return ReadNumber(value, 0, 1e9); }, nullptr,
          "lines that a rank may log, 20 seconds' worth at once; what is more is dropped, and said; 0: no limit"),
      LogRotateKey(),
      Integer("launch.log_keep", DS_KEY_FIELD(launch.log_keep), 0, 1000, nullptr,
              "older files of each rank's log that stay"),
      Text("launch.interface", "auto, a name, an address or a network", DS_KEY_FIELD(launch.interface), ReadInterface,
           nullptr,
           "network that control and data connections use, on each node the interface with this name or an address in "
           "this network; auto: the one that reaches the launcher; `--interface` wins"),
      Text(
          "launch.agent", "auto, an absolute path, or a name", DS_KEY_FIELD(launch.agent), ReadAgentProgram, nullptr,
          "ds-agent on the nodes; auto: the path beside ds-launch's own; a name is looked for in PATH; `--agent` wins"),
      Text("launch.ssh_config", "auto, or an absolute path", DS_KEY_FIELD(launch.ssh_config), ReadAbsolutePath, nullptr,
           "a configuration file for ssh (`ssh -F`); auto: ssh's own; `--ssh-config` wins"),
      Integer("launch.ssh_port", DS_KEY_FIELD(launch.ssh_port), 0, 65535, nullptr,
              "the port of sshd; 0: as ssh is configured; `--ssh-port` wins"),
      Text("launch.daemon_site", "auto, or an absolute path", DS_KEY_FIELD(launch.daemon_site), ReadAbsolutePath,
           nullptr,
           "the file of the site identity that daemons know (bootstrap daemon); auto: ~/.config/deepshard/site.yaml; "
           "`--daemon-site` wins"),
      Integer("launch.daemon_port", DS_KEY_FIELD(launch.daemon_port), 0, 65535, nullptr,
              "the port that daemons listen on; 0: as the site file says; `--daemon-port` wins"),
      Text(
          "launch.contain", "auto, cgroup, namespace, process", DS_KEY_FIELD(launch.contain), ReadContain, nullptr,
          "what keeps a job's processes from outliving it (docs/operations.md); auto: the strongest that a node allows "
          "and programs do not notice"),
      SkipChecksKey(),
  };
}

}  // namespace ds
