// ds-agent: started on each node by ds-launch. Its bootstrap message comes on standard input.
#include <signal.h>
#include <strings.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "agent/agent.h"
#include "agent/contain/contain.h"
#include "agent/daemon/command.h"
#include "proto/attach.h"
#include "proto/channel.h"
#include "proto/deepshard.pb.h"
#include "proto/version.h"
#include "runtime/base/end_within.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/base/secret.h"
#include "runtime/base/standard_output.h"
#include "runtime/base/start_limits.h"
#include "runtime/base/terminal.h"
#include "runtime/base/text.h"

namespace {

constexpr char kHelp[] =
    "ds-agent is started for you, one on each node, by ds-launch and ds-report. It reads who it is and the job's\n"
    "credentials from standard input, connects to the launcher, starts one worker a slot and ends when the job does.\n"
    "ds-agent --daemon stays and starts agents for launchers of its user: ds-agent --daemon --help. Else:\n"
    "  --attached        where other programs may write to the same streams (ssh): it says that it is there, reads "
    "one\n"
    "                    message with its length, and ends when standard input does\n"
    "  --tied            reads one message with its length, and ends when standard input does: the launcher's own "
    "children\n"
    "  --node-from NAME  where all agents are handed the same bytes: the environment variable NAME tells which of "
    "them\n"
    "                    this one is (0, 1, ...)\n"
    "  --host-from NAME  likewise, where NAME holds the host's name\n"
    "  --leave-signals   where signals reach every process of the job at once (SLURM): the launcher decides what\n"
    "                    follows\n"
    "  --help, --version\n";

constexpr double kEndSeconds = 5;  // once its part in the job is over: gRPC may not come to an end

/// Some 3 KB an agent: enough for a job of 20,000 nodes.
constexpr size_t kMaxMessage = 64u << 20;

/// Everything up to end of file.
std::string ReadStandardInput() {
  std::string bytes;
  char block[16384];
  for (ssize_t n; (n = ::read(STDIN_FILENO, block, sizeof block)) != 0;) {
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw ds::SystemError("cannot read the bootstrap message from standard input", errno);
    bytes.append(block, static_cast<size_t>(n));
    if (bytes.size() > kMaxMessage) throw ds::UsageError("the bootstrap message on standard input is too long");
  }
  return bytes;
}

struct Options {
  std::string node_from, host_from;  ///< variables; at most one of them is not empty
  bool leave_signals = false, attached = false, tied = false;

  /// Whether standard input stays open for as long as the launcher lives.
  bool watches_input() const { return attached || tied; }
};

/// The number that the variable `name` holds.
int NodeFrom(const std::string& name) {
  const char* text = std::getenv(name.c_str());
  int node = -1;
  const std::string_view digits = text ? text : "";
  if (std::from_chars(digits.data(), digits.data() + digits.size(), node).ptr != digits.data() + digits.size() ||
      node < 0) {
    throw ds::UsageError("--node-from " + name + ": the variable is `" + std::string(digits) +
                         "`; expected the number of this agent, 0, 1, ...");
  }
  return node;
}

/// This agent's bootstrap message; of those for all agents the one that a variable tells.
deepshard::v1::Bootstrap ReadBootstrap(const Options& options) {
  std::string bytes = ReadStandardInput();
  deepshard::v1::Bootstrap bootstrap;
  deepshard::v1::Bootstraps all;
  if (options.node_from.empty() && options.host_from.empty()) {
    if (!bootstrap.ParseFromString(bytes)) bootstrap.Clear();
  } else if (!options.node_from.empty()) {
    const int node = NodeFrom(options.node_from);
    if (all.ParseFromString(bytes) && node < all.agents_size()) bootstrap = all.agents(node);
  } else if (all.ParseFromString(bytes)) {
    const char* text = std::getenv(options.host_from.c_str());
    for (const deepshard::v1::Bootstrap& agent : all.agents()) {
      if (text && ::strcasecmp(agent.host().c_str(), text) == 0) bootstrap = agent;
    }
    if (all.agents_size() > 0 && bootstrap.job_id().empty()) {
      throw ds::UsageError("--host-from " + options.host_from + ": the variable is `" + (text ? text : "") +
                           "`, which is no host of the job");
    }
  }
  ds::Wipe(bytes);
  for (auto& agent : *all.mutable_agents()) ds::Wipe(*agent.mutable_private_key());
  if (bootstrap.job_id().empty()) {
    throw ds::UsageError("standard input holds no bootstrap message for this agent: ds-agent is started by ds-launch");
  }
  return bootstrap;
}

/// Who was ended by a signal ends by it: so the launcher sees which.
void EndBySignal(int signal) {
  ::signal(signal, SIG_DFL);
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, signal);
  ::raise(signal);
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

/// Over streams that others may use too (proto/attach.h).
void SayReady() {
  const std::string ready = ds::ReadyLine({ds::kProtocolVersion, ds::BuildVersion()});
  for (size_t done = 0; done < ready.size();) {
    const ssize_t n = ::write(STDOUT_FILENO, ready.data() + done, ready.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw ds::SystemError("cannot write to standard output", errno);
    done += static_cast<size_t>(n);
  }
}

deepshard::v1::Bootstrap ReadFramed() {
  std::string bytes = ds::ReadFrame(STDIN_FILENO).value_or("");
  deepshard::v1::Bootstrap bootstrap;
  if (bytes.empty())
    throw ds::RuntimeError("standard input ended before a bootstrap message: whoever started it is gone");
  const bool parsed = bootstrap.ParseFromString(bytes);
  ds::Wipe(bytes);
  if (!parsed || bootstrap.job_id().empty())
    throw ds::UsageError("standard input holds no bootstrap message: ds-agent is started by ds-launch");
  return bootstrap;
}

/// An exit code where there is nothing to run.
std::optional<int> ParseArguments(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    const bool value = i + 1 < argc && *argv[i + 1];
    if (flag == "--node-from" && value && options.host_from.empty()) {
      options.node_from = argv[++i];
    } else if (flag == "--host-from" && value && options.node_from.empty()) {
      options.host_from = argv[++i];
    } else if (flag == "--attached") {
      options.attached = true;
    } else if (flag == "--tied") {
      options.tied = true;
    } else if (flag == "--leave-signals") {
      options.leave_signals = true;
    } else if (flag == "--help") {
      std::fputs(kHelp, stdout);
      ds::FlushStandardOutput();
      return 0;
    } else if (flag == "--version") {
      std::printf("ds-agent %s (protocol %u)\n", ds::BuildVersion(), ds::kProtocolVersion);
      ds::FlushStandardOutput();
      return 0;
    } else {
      const bool takes_value = flag == "--node-from" || flag == "--host-from";
      const std::string name(flag.substr(0, flag.find('=')));
      throw ds::UsageError(takes_value
                               ? std::string(flag) +
                                     ": a variable's name is missing, or --node-from and --host-from are both given"
                               : "unknown option " + ds::Shown(name) + "; the nearest is " +
                                     ds::Nearest(name, {"--attached", "--tied", "--node-from", "--host-from",
                                                        "--leave-signals", "--daemon", "--help", "--version"}) +
                                     "\nds-agent --help explains every option");
    }
  }
  return std::nullopt;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "--daemon") == 0) {
    ds::PrepareGrpc();
    ds::KeepMemoryPrivate();
    ::signal(SIGPIPE, SIG_IGN);
    return ds::DaemonMain(argc, argv);
  }
  ds::PrepareGrpc();
  ::signal(SIGPIPE, SIG_IGN);  // a closed log must not end a node
  try {
    Options options;
    if (const std::optional<int> code = ParseArguments(argc, argv, options)) return *code;
    if (ds::IsTerminal(STDIN_FILENO)) throw ds::UsageError(kHelp);
    if (options.attached) SayReady();
    deepshard::v1::Bootstrap bootstrap = options.watches_input() ? ReadFramed() : ReadBootstrap(options);
    const auto wipe = [&bootstrap] { ds::Wipe(*bootstrap.mutable_private_key()); };
    // Before gRPC has threads; what follows runs in the child that it makes.
    ds::Contain(bootstrap.contain(), [&wipe] {
      ds::KeepMemoryPrivate();
      wipe();
    });
    ds::KeepMemoryPrivate();
    ds::CheckStartLimits("ds-agent");
    int code = 0;
    {
      ds::Agent agent(bootstrap, {options.watches_input() ? STDIN_FILENO : -1, options.leave_signals});
      wipe();
      code = agent.Run();
      ds::EndWithin(kEndSeconds, code);
    }
    if (code > 128) EndBySignal(code - 128);
    return code;
  } catch (const ds::Error& error) {
    ds::LogError(std::string("ds-agent: ") + error.what());
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    ds::LogError(std::string("ds-agent: ") + error.what());
    return 1;
  }
}
