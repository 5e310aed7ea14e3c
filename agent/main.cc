// ds-agent: started on each node by ds-launch. Its bootstrap message comes on standard input.
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "agent/agent.h"
#include "agent/daemon/command.h"
#include "proto/attach.h"
#include "proto/channel.h"
#include "proto/deepshard.pb.h"
#include "proto/version.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/base/terminal.h"

namespace {

constexpr char kHelp[] =
    "ds-agent is started for you, one on each node, by ds-launch and ds-report. It reads who it is and the job's\n"
    "credentials from standard input, connects to the launcher, starts one worker a slot and ends when the job does.\n"
    "ds-agent --daemon stays and starts agents for launchers of its user: ds-agent --daemon --help.\n"
    "Options: --help, --version; --attached, where other programs may write to the same streams (ssh): it says that it "
    "is\n"
    "there, reads one message with its length, and ends when standard input does; and --node-from NAME, where all "
    "agents are handed the same bytes: the environment "
    "variable\n"
    "NAME then tells which of them this one is (0, 1, ...).\n";

/// Everything up to end of file.
std::string ReadStandardInput() {
  std::string bytes;
  char block[4096];
  for (ssize_t n; (n = ::read(STDIN_FILENO, block, sizeof block)) != 0;) {
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw ds::SystemError("cannot read the bootstrap message from standard input", errno);
    bytes.append(block, static_cast<size_t>(n));
    if (bytes.size() > (1u << 20)) throw ds::UsageError("the bootstrap message on standard input is too long");
  }
  return bytes;
}

/// This agent's bootstrap message; of those for all agents the one that the variable `node_from` numbers.
deepshard::v1::Bootstrap ReadBootstrap(const std::string& node_from) {
  const std::string bytes = ReadStandardInput();
  deepshard::v1::Bootstrap bootstrap;
  if (node_from.empty()) {
    if (!bootstrap.ParseFromString(bytes)) bootstrap.Clear();
  } else {
    deepshard::v1::Bootstraps all;
    const char* text = std::getenv(node_from.c_str());
    int node = -1;
    const std::string_view digits = text ? text : "";
    if (std::from_chars(digits.data(), digits.data() + digits.size(), node).ptr != digits.data() + digits.size() ||
        node < 0) {
      throw ds::UsageError("--node-from " + node_from + ": the variable is `" + std::string(digits) +
                           "`; expected the number of this agent, 0, 1, ...");
    }
    if (all.ParseFromString(bytes) && node < all.agents_size()) bootstrap = all.agents(node);
  }
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

/// Bootstrap message over streams that others may use too (proto/attach.h); empty: who started this agent is gone.
std::string Attach() {
  const std::string ready = ds::ReadyLine({ds::kProtocolVersion, ds::BuildVersion()});
  for (size_t done = 0; done < ready.size();) {
    const ssize_t n = ::write(STDOUT_FILENO, ready.data() + done, ready.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw ds::SystemError("cannot write to standard output", errno);
    done += static_cast<size_t>(n);
  }
  return ds::ReadFrame(STDIN_FILENO).value_or("");
}

deepshard::v1::Bootstrap ReadAttached() {
  const std::string bytes = Attach();
  deepshard::v1::Bootstrap bootstrap;
  if (bytes.empty())
    throw ds::RuntimeError("standard input ended before a bootstrap message: whoever started it is gone");
  if (!bootstrap.ParseFromString(bytes) || bootstrap.job_id().empty())
    throw ds::UsageError("standard input holds no bootstrap message: ds-agent is started by ds-launch");
  return bootstrap;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "--daemon") == 0) {
    ds::PrepareGrpc();
    ::signal(SIGPIPE, SIG_IGN);
    return ds::DaemonMain(argc, argv);
  }
  std::string node_from;
  bool attached = false;
  if (argc == 3 && std::strcmp(argv[1], "--node-from") == 0 && *argv[2]) {
    node_from = argv[2];
  } else if (argc == 2 && std::strcmp(argv[1], "--attached") == 0) {
    attached = true;
  } else if (argc > 1) {
    bool help = std::strcmp(argv[1], "--help") == 0, version = std::strcmp(argv[1], "--version") == 0;
    if (help) std::fputs(kHelp, stdout);
    if (version) std::printf("ds-agent %s (protocol %u)\n", ds::BuildVersion(), ds::kProtocolVersion);
    if (!help && !version) std::fprintf(stderr, "error: unknown option %s\n%s", argv[1], kHelp);
    return help || version ? 0 : 2;
  }
  ds::PrepareGrpc();
  ::signal(SIGPIPE, SIG_IGN);  // a closed log must not end a node
  try {
    if (ds::IsTerminal(STDIN_FILENO)) throw ds::UsageError(kHelp);
    int code = attached ? ds::Agent(ReadAttached(), STDIN_FILENO).Run() : ds::Agent(ReadBootstrap(node_from)).Run();
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
