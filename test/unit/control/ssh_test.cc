// Bootstrap `ssh` without a network: its command lines, what it makes of ssh's failures, its first words with an agent.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "launcher/bootstrap/login_pace.h"
#include "launcher/bootstrap/ssh_command.h"
#include "launcher/bootstrap/ssh_failure.h"
#include "proto/attach.h"
#include "proto/version.h"
#include "runtime/base/error.h"
#include "test/catch.h"

using namespace ds;
using Next = SshFailure::Next;

namespace {

/// What `shell -c "printf %s WORD"` prints.
std::string Echoed(const std::string& shell, const std::string& word) {
  int pipe[2];
  REQUIRE(::pipe2(pipe, 0) == 0);
  SpawnOptions options;
  options.argv = {shell, "-c", "printf %s " + word};
  options.environment = {"PATH=/usr/bin:/bin"};
  options.stdout_fd = pipe[1];
  const pid_t pid = Spawn(options);
  ::close(pipe[1]);
  std::string text;
  char block[256];
  for (ssize_t n; (n = ::read(pipe[0], block, sizeof block)) > 0;) text.append(block, static_cast<size_t>(n));
  ::close(pipe[0]);
  ::waitpid(pid, nullptr, 0);
  return text;
}

Next NextOf(int code, const std::string& errors) {
  return ReadSshFailure({"w1", "", {0}}, "/ds", {code, 0}, errors).next;
}

std::string MessageOf(int code, const std::string& errors) {
  return ReadSshFailure({"w1", "alice", {0}}, "/opt/ds-agent", {code, 0}, errors).message;
}

}  // namespace

TEST_CASE("The agent's path reaches the program through a shell byte for byte") {
  for (const std::string& path :
       {std::string("/opt/ds/bin/ds-agent"), std::string("/a b/$HOME/`id`/ds"), std::string("/it's/\"q\"/\\n/\\\\x"),
        std::string("/new\nline/*?[x]{a,b}~;&|<>()#!"), std::string("/\xc3\xbc\xff/ds")}) {
    INFO(path);
    for (const char* shell : {"/bin/sh", "/bin/bash", "/usr/bin/zsh", "/usr/bin/fish", "/bin/tcsh"}) {
      if (::access(shell, X_OK) != 0) continue;
      INFO(shell);
      CHECK(Echoed(shell, ShellWord(path)) == path);
    }
  }
  CHECK(ShellWord("/opt/ds-agent") == "/opt/ds-agent");
  CHECK(ShellWord("") == "''");
}

TEST_CASE("ssh asks nothing, forwards nothing, leaves nothing behind, and takes no host for an option") {
  BootstrapSettings settings;
  settings.agent = "/opt/ds agent";
  settings.ssh_config = "/etc/my ssh";
  settings.ssh_port = 2222;
  settings.lease_seconds = 120;
  const std::vector<std::string> argv = SshCommand(settings, {"fe80::1", "alice", {0}}, "--attached");
  const auto has = [&](const std::string& text) { return std::find(argv.begin(), argv.end(), text) != argv.end(); };
  CHECK(argv[0] == "ssh");
  for (const char* option : {"BatchMode=yes", "ControlMaster=no", "ClearAllForwardings=yes", "ForwardAgent=no",
                             "RequestTTY=no", "RemoteCommand=none"}) {
    INFO(option);
    CHECK(has(option));
  }
  CHECK(has("ServerAliveCountMax=16"));  // 15 s each: beyond twice the lease
  CHECK((has("-F") && has("/etc/my ssh") && has("-p") && has("2222") && has("-l") && has("alice")));
  REQUIRE(argv.size() > 3);
  const std::vector<std::string> tail(argv.end() - 3, argv.end());
  CHECK(tail == std::vector<std::string>{"--", "fe80::1", "exec '/opt/ds agent' --attached"});
}

TEST_CASE("What ssh says decides whether it is tried again") {
  CHECK(
      NextOf(
          255,
          "kex_exchange_identification: read: Connection reset by peer\r\nConnection reset by 10.0.0.1 port 22\r\n") ==
      Next::retry);
  CHECK(NextOf(255, "kex_exchange_identification: Connection closed by remote host\r\n") == Next::retry);
  CHECK(NextOf(255, "Connection timed out during banner exchange\r\nConnection to 10.0.0.1 port 22 timed out\r\n") ==
        Next::retry);
  CHECK(NextOf(255, "ssh: Could not resolve hostname w1: Temporary failure in name resolution\r\n") ==
        Next::retry_a_few);
  CHECK(NextOf(255, "ssh: Could not resolve hostname w1: Name or service not known\r\n") == Next::fail);
  CHECK(NextOf(255, "ssh: connect to host w1 port 22: Connection timed out\r\n") == Next::fail);
  CHECK(NextOf(255, "ssh: connect to host w1 port 22: Connection refused\r\n") == Next::fail);
  CHECK(NextOf(255, "root@w1: Permission denied (publickey).\r\n") == Next::fail);
  CHECK(NextOf(255, "Host key verification failed.\r\n") == Next::fail);
  CHECK(NextOf(255, "something new\r\n") == Next::fail);
  CHECK(NextOf(2, "error: unknown option --attached\r\n") == Next::ask_version);
  CHECK(NextOf(127, "bash: line 1: /ds: No such file or directory\r\n") == Next::fail);
}

TEST_CASE("A banner before ssh's own words is not taken for them") {
  const std::string banner = "Permission denied is what intruders get.\nWelcome.\nDo not log in.\nRules apply.\n";
  CHECK(NextOf(255, banner + "kex_exchange_identification: read: Connection reset by peer\r\n" +
                        "Connection reset by 10.0.0.1 port 22\r\n\r\n") == Next::retry);
}

TEST_CASE("Each failure names the host, says ssh's words and what to do") {
  const std::string denied = MessageOf(255, "alice@w1: Permission denied (publickey).\r\n");
  CHECK(denied.find("alice@w1") == 0);
  CHECK(denied.find("ssh-copy-id alice@w1") != std::string::npos);
  CHECK(denied.find("Permission denied (publickey)") != std::string::npos);
  // Advice can be followed as it stands: with the configuration and the port that were given.
  const auto told = [](const std::string& errors, const SshWay& way) {
    return ReadSshFailure({"w1", "alice", {0}}, "/ds", {255, 0}, errors, way).message;
  };
  const SshWay way{"/etc/cluster ssh", 2222};
  CHECK(told("alice@w1: Permission denied (publickey).\n", way)
            .find("`ssh-copy-id -F '/etc/cluster ssh' -p 2222 alice@w1`") != std::string::npos);
  CHECK(told("Host key verification failed.\n", way).find("`ssh -F '/etc/cluster ssh' -p 2222 alice@w1`") !=
        std::string::npos);
  CHECK(told("Host key verification failed.\n", way).find("`ssh-keyscan -p 2222 w1`") != std::string::npos);
  CHECK(told("REMOTE HOST IDENTIFICATION HAS CHANGED!\n", way).find("`ssh-keygen -R '[w1]:2222'`") !=
        std::string::npos);
  CHECK(told("REMOTE HOST IDENTIFICATION HAS CHANGED!\n", {}).find("`ssh-keygen -R w1`") != std::string::npos);
  CHECK(told("Host key verification failed.\n", {}).find("`ssh alice@w1`") != std::string::npos);
  CHECK(told("odd words\n", way).find("`ssh -F '/etc/cluster ssh' -p 2222 -o BatchMode=yes alice@w1 true`") !=
        std::string::npos);
  const std::string missing = MessageOf(127, "sh: 1: exec: /opt/ds-agent: not found\n");
  CHECK(missing.find("there is no ds-agent that runs at /opt/ds-agent on alice@w1") == 0);
  CHECK(missing.find("--agent") != std::string::npos);
  CHECK(MessageOf(1, "/opt/ds-agent: Command not found.\n").find("there is no ds-agent") == 0);  // csh
  CHECK(MessageOf(255, "Host key verification failed.\n").find("ssh-keyscan w1") != std::string::npos);
  CHECK(MessageOf(255,
                  "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\na\nb\nc\nd\nHost key verification failed.\n")
            .find("ssh-keygen -R") != std::string::npos);
  CHECK(MessageOf(255, "").find("exit code 255") != std::string::npos);
  const std::string flood = MessageOf(255, std::string(100000, 'x') + "\x1b[31m\nlast\n");
  CHECK(flood.size() < 2000);
  CHECK(flood.find('\x1b') == std::string::npos);
}

TEST_CASE("An older agent: both versions are named") {
  CHECK(AgentVersion("noise\nds-agent 0.0.7 (protocol 1)\n") == "0.0.7 (protocol 1)");
  CHECK(AgentVersion("usage: ...") == "");
  const std::string text = VersionsDiffer("w1", "/opt/ds-agent", "0.0.7 (protocol 1)");
  CHECK(text.find("0.0.7 (protocol 1)") != std::string::npos);
  CHECK(text.find(BuildVersion()) != std::string::npos);
}

TEST_CASE("An agent is found among what start-up files write") {
  const std::string ready = ReadyLine({7, "1.2.3-rc1"});
  for (const std::string& noise : {std::string(), std::string("no newline"), std::string("\x00\xff\n", 3),
                                   std::string("DEEPSHARD-AGENT-READY protocol=x build=1 ready\n"),
                                   std::string("DEEPSHARD-AGENT-READY protocol=7 build= ready\n")}) {
    const std::optional<AttachedAgent> agent = FindReady(noise + ready + "more");
    REQUIRE(agent);
    CHECK(agent->protocol == 7);
    CHECK(agent->build == "1.2.3-rc1");
  }
  for (size_t cut = 0; cut < ready.size(); ++cut) CHECK_FALSE(FindReady(ready.substr(0, cut)));
}

TEST_CASE("A bootstrap message goes over with its length, and the stream stays open") {
  int pipe[2];
  REQUIRE(::pipe2(pipe, 0) == 0);
  const std::string message("a\0b\n\xff", 5), frame = FrameBootstrap(message) + "rest";
  REQUIRE(::write(pipe[1], frame.data(), frame.size()) == static_cast<ssize_t>(frame.size()));
  CHECK(ReadFrame(pipe[0]) == message);
  char rest[5] = "";
  CHECK(::read(pipe[0], rest, 4) == 4);
  CHECK(std::string(rest) == "rest");
  const std::string half = FrameBootstrap(message).substr(0, 14);
  REQUIRE(::write(pipe[1], half.data(), half.size()) == static_cast<ssize_t>(half.size()));
  ::close(pipe[1]);
  CHECK_FALSE(ReadFrame(pipe[0]));
  ::close(pipe[0]);
  for (const std::string& wrong : {std::string("GET / HTTP/1.0\r\n"), std::string("DSBOOT1\n\xff\xff\xff\xff")}) {
    REQUIRE(::pipe2(pipe, 0) == 0);
    REQUIRE(::write(pipe[1], wrong.data(), wrong.size()) == static_cast<ssize_t>(wrong.size()));
    CHECK_THROWS_AS(ReadFrame(pipe[0]), UsageError);
    ::close(pipe[0]);
    ::close(pipe[1]);
  }
}

TEST_CASE("Logins are fewer at once after some were turned away, and more again with each that succeeds") {
  LoginPace pace;
  using Clock = LoginPace::Clock;
  const Clock::time_point t0{}, first = t0 + std::chrono::seconds(1);
  for (int i = 0; i < LoginPace::kFirst; ++i) {
    REQUIRE(pace.MayStart());
    pace.Started();
  }
  CHECK_FALSE(pace.MayStart());
  for (int i = 0; i < 29; ++i) pace.TurnedAway(first, first + std::chrono::milliseconds(10 + i));
  CHECK(pace.limit() == LoginPace::kFirst / 2);  // once for all that began together
  for (int i = 0; i < 3; ++i) pace.Ended(true);
  CHECK(pace.limit() == LoginPace::kFirst / 2 + 3);
  for (int second = 2; second < 20; ++second) {
    pace.Started();
    pace.TurnedAway(t0 + std::chrono::seconds(second), t0 + std::chrono::seconds(second));
  }
  CHECK(pace.limit() == 1);
  CHECK(pace.MayStart());
  for (int attempt = 1; attempt < 40; ++attempt) {
    const double pause = pace.Pause(attempt).count();
    CHECK((pause >= 0.1 && pause <= 4.5));
  }
}
