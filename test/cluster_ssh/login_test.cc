// Bootstrap `ssh` against a real sshd on this machine: logins, every way in which they fail, and every end.
#include <signal.h>

#include <chrono>
#include <filesystem>

#include "proto/version.h"
#include "test/catch.h"
#include "test/cluster_ssh/sshd.h"

namespace ds::test {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double Since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

std::unique_ptr<LaunchedJob> Launch(const Sshd& sshd, const std::string& hosts, std::vector<std::string> rest) {
  LaunchSetting setting;
  setting.hosts = hosts;
  setting.arguments = sshd.Options();
  setting.arguments.insert(setting.arguments.end(), {"--hostfile", "hosts"});
  setting.arguments.insert(setting.arguments.end(), rest.begin(), rest.end());
  return std::make_unique<LaunchedJob>(setting);
}

constexpr char kTwo[] = "127.0.0.1 slots=1\n127.0.0.2 slots=1\n";

/// A job that cannot begin: exit code 3 well before launch.join_seconds, what its cause says, and nothing left.
std::string MustNotStart(const Sshd& sshd, const std::string& hosts, std::vector<std::string> rest = {}) {
  rest.insert(rest.end(), {"--", "true"});
  const Clock::time_point begin = Clock::now();
  const auto job = Launch(sshd, hosts, rest);
  const int code = job->Wait(30);
  INFO(job->output());
  CHECK(code == 3);
  CHECK(Since(begin) < 20);
  CHECK(CauseOf(job->Summary(), "kind") == "preflight");
  CHECK(job->NothingLeft());
  return CauseOf(job->Summary(), "message");
}

bool Has(const std::string& text, const std::string& part) {
  INFO(text);
  CHECK(text.find(part) != std::string::npos);
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE(
    "A program runs over ssh, and leaves nothing: no process, no socket, not even where the user shares connections") {
  if (!HasOpenSsh()) return;
  Sshd sshd;
  sshd.Configure("ControlMaster auto\nControlPath " + sshd.path("control-%C") + "\nControlPersist yes");
  const auto job = Launch(sshd, kTwo, {"--", "sh", "-c", "echo rank $RANK of $WORLD_SIZE"});
  REQUIRE(job->Wait() == 0);
  CHECK(Has(job->Log(0), "rank 0 of 2"));
  CHECK(Has(job->Log(1), "rank 1 of 2"));
  CHECK(job->HasEvent("bootstrap"));
  CHECK(Has(job->output(), "bootstrap: ssh (as asked)"));
  CHECK(job->NothingLeft());
  for (const auto& entry : fs::directory_iterator(sshd.path(""))) {
    CHECK(entry.path().filename().string().find("control-") == std::string::npos);
  }
}

TEST_CASE("sshd with MaxStartups 3 turns logins away: all of 24 hosts are up in the end") {
  if (!HasOpenSsh()) return;
  SshdSetting setting;
  setting.options = "MaxStartups 3\nLogLevel VERBOSE";
  setting.known.clear();
  std::string hosts;
  for (int i = 1; i <= 24; ++i) {
    setting.known.push_back("127.0.0." + std::to_string(i));
    hosts += setting.known.back() + " slots=1\n";
  }
  Sshd sshd(setting);
  const auto job = Launch(sshd, hosts, {"--", "true"});
  REQUIRE(job->Wait(60) == 0);
  CHECK(Has(sshd.Log(), "MaxStartups"));  // it did turn some away
  CHECK(job->NothingLeft());
}

TEST_CASE("Hosts that cannot be reached over ssh: exit code 3, each with its reason and what to do") {
  if (!HasOpenSsh()) return;
  Sshd sshd;
  SECTION("an unknown host key") {
    const std::string text = MustNotStart(sshd, "127.0.0.1 slots=1\n127.0.0.9 slots=1\n");
    CHECK(Has(text, "the host key of 127.0.0.9 is not known here"));
    CHECK(Has(text, "ssh-keyscan"));
  }
  SECTION("another host key than the known one") {
    WriteText(sshd.path("known_hosts"), "[127.0.0.1]:" + std::to_string(sshd.port()) + " " +
                                            sshd.user_key().substr(0, sshd.user_key().rfind(' ')));
    CHECK(Has(MustNotStart(sshd, "127.0.0.1 slots=1\n"), "is another than the one known here"));
  }
  SECTION("a key that is not let in, on both hosts: both are named") {
    WriteText(sshd.path("authorized_keys"), "");
    const std::string text = MustNotStart(sshd, kTwo);
    CHECK(Has(text, "lets this user in with no key"));
    CHECK((Has(text, "127.0.0.1") && Has(text, "127.0.0.2")));
  }
  SECTION("a name that nobody has") {
    CHECK(Has(MustNotStart(sshd, "no-such-host.invalid slots=1\n"), "no-such-host.invalid"));
  }
  SECTION("no sshd at the port") {
    CHECK(Has(MustNotStart(sshd, "127.0.0.1 slots=1\n", {"--ssh-port", "1"}), "no sshd listens"));
  }
  SECTION("no ds-agent at the path") {
    const std::string text = MustNotStart(sshd, "127.0.0.1 slots=1\n", {"--agent", "/no such/ds-agent"});
    CHECK(Has(text, "there is no ds-agent that runs at /no such/ds-agent on 127.0.0.1"));
  }
  SECTION("a ds-agent that does not know how it is called: both versions are named") {
    const std::string agent = sshd.path("old agent");
    WriteText(agent,
              "#!/bin/sh\ntest \"$1\" = --version && echo 'ds-agent 0.0.7 (protocol 1)' && exit 0\n"
              "echo \"error: unknown option $1\" >&2\nexit 2\n");
    fs::permissions(agent, fs::perms::owner_all);
    const std::string text = MustNotStart(sshd, "127.0.0.1 slots=1\n", {"--agent", agent});
    CHECK((Has(text, "build 0.0.7 (protocol 1)") && Has(text, std::string("build ") + BuildVersion())));
  }
  SECTION("a ds-agent of another build that answers: both versions are named, and it gets no secret") {
    const std::string agent = sshd.path("other-agent");
    WriteText(agent,
              "#!/bin/sh\necho 'DEEPSHARD-AGENT-READY protocol=2 build=9.9.9 ready'\ncat > " + sshd.path("got") + "\n");
    fs::permissions(agent, fs::perms::owner_all);
    const std::string text = MustNotStart(sshd, "127.0.0.1 slots=1\n", {"--agent", agent});
    CHECK((Has(text, "build 9.9.9 (protocol 2)") && Has(text, std::string("build ") + BuildVersion())));
    CHECK(ReadText(sshd.path("got")).empty());
  }
  SECTION("a configuration that ssh cannot read") {
    sshd.Configure("NoSuchOption yes");
    CHECK(Has(MustNotStart(sshd, "127.0.0.1 slots=1\n"), "ssh cannot use its configuration"));
  }
}

TEST_CASE("Start-up files that write do no harm; one that reads gets no secret") {
  if (!HasOpenSsh()) return;
  Sshd sshd;
  SECTION("they write, on both streams, and a megabyte of it") {
    WriteText(sshd.home() + "/.bashrc",
              "echo welcome; printf 'no newline'; echo oops >&2; head -c 1000000 /dev/zero\n");
    const auto job = Launch(sshd, kTwo, {"--", "true"});
    REQUIRE(job->Wait() == 0);
    CHECK(job->NothingLeft());
  }
  SECTION("one reads standard input") {
    WriteText(sshd.home() + "/.bashrc", "touch $HOME/ran; cat > $HOME/got\n");
    const auto job = Launch(sshd, "127.0.0.1 slots=1\n", {"--set", "launch.join_seconds=3", "--", "true"});
    const int code = job->Wait();
    if (!fs::exists(sshd.home() + "/ran")) return;  // no bash there
    CHECK(code == 3);
    CHECK(Has(CauseOf(job->Summary(), "message"), "start-up file"));
    CHECK(ReadText(sshd.home() + "/got").empty());
    CHECK(job->NothingLeft());
  }
}

TEST_CASE("No secret in arguments or environments") {
  if (!HasOpenSsh()) return;
  Sshd sshd;
  const auto job = Launch(sshd, kTwo, {"fake.yaml"});
  REQUIRE(job->WaitForStep(1));
  size_t looked_at = 0;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string environment = ReadText(entry.path() / "environ");
    if (environment.find("TMPDIR=/tmp/ds-fault-") == std::string::npos) continue;
    ++looked_at;
    for (const std::string& text : {environment, ReadText(entry.path() / "cmdline")}) {
      CHECK(text.find("PRIVATE KEY") == std::string::npos);
      CHECK(text.find("DSBOOT") == std::string::npos);
    }
  }
  CHECK(looked_at >= 7);  // ds-launch, and of two hosts ssh, ds-agent and a worker
  job->Signal(SIGTERM);
  CHECK(job->Wait() == 143);
  CHECK(job->NothingLeft());
}

TEST_CASE("Killed over ssh: whoever it is, nothing is left, and the cause is named") {
  if (!HasOpenSsh()) return;
  Sshd sshd;
  const auto job = Launch(sshd, kTwo, {"fake.yaml"});
  REQUIRE(job->WaitForStep(2));
  const auto ssh_to = [&](const std::string& host) {
    std::string found;
    RunProgram({"pgrep", "-f", "-P", std::to_string(job->pid()), "--", " -- " + host + " exec"}, &found);
    return found.empty() ? -1 : std::stoi(found);
  };
  SECTION("ds-launch: agents and workers are gone within 2 s") {
    job->Signal(SIGKILL);
    job->Wait();
    CHECK(job->NothingLeft(4));
  }
  SECTION("one ssh: its node is lost") {
    const pid_t ssh = ssh_to("127.0.0.2");
    REQUIRE(ssh > 0);
    ::kill(ssh, SIGKILL);
    CHECK(job->Wait() == 4);
    CHECK(CauseOf(job->Summary(), "host") == "127.0.0.2");
    CHECK(CauseOf(job->Summary(), "kind") == "node_lost");
    CHECK(job->NothingLeft());
  }
  SECTION("an agent") {
    ::kill(job->Agent("127.0.0.2"), SIGKILL);
    CHECK(job->Wait() == 4);
    CHECK(CauseOf(job->Summary(), "host") == "127.0.0.2");
    CHECK(job->NothingLeft());
  }
  SECTION("a worker: 128 + its signal") {
    ::kill(job->Worker(1), SIGKILL);
    CHECK(job->Wait() == 137);
    CHECK(CauseOf(job->Summary(), "rank") == "1");
    CHECK(job->NothingLeft());
  }
}

TEST_CASE("Ended while it logs in: at once, and nothing is left") {
  if (!HasOpenSsh()) return;
  Sshd sshd;
  WriteText(sshd.home() + "/.bashrc", "touch $HOME/ran; sleep 4\n");
  const auto job = Launch(sshd, kTwo, {"--", "true"});
  Eventually(5, [&] { return fs::exists(sshd.home() + "/ran"); });
  const Clock::time_point begin = Clock::now();
  SECTION("by Ctrl-C") {
    job->Signal(SIGINT);
    CHECK(job->Wait() == 130);
  }
  SECTION("by SIGKILL") {
    job->Signal(SIGKILL);
    CHECK(job->Wait() == 137);
  }
  CHECK(Since(begin) < 3);
  CHECK(job->NothingLeft(8));  // the start-up file ends first, and the agent after it finds nobody
}

}  // namespace ds::test
