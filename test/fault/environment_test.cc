// What programs are told, and what users hand to them: through real agents, byte for byte.
#include <arpa/inet.h>
#include <signal.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "test/catch.h"
#include "test/fault/launched_job.h"
#include "test/ports.h"

using ds::test::LaunchedJob;
using ds::test::LaunchSetting;

namespace {

using Variables = std::map<std::string, std::string>;

/// The environment of a rank whose program was `cat /proc/self/environ`.
Variables EnvironmentOf(const LaunchedJob& job, int rank) {
  std::string text = job.Log(rank);
  REQUIRE(text.ends_with(std::string("\0\n", 2)));  // the log adds the last newline
  text.pop_back();
  Variables variables;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\0', begin), equals = text.find('=', begin);
    variables[text.substr(begin, equals - begin)] = text.substr(equals + 1, end - equals - 1);
    begin = end + 1;
  }
  return variables;
}

std::vector<std::string> ShowEnvironment(std::vector<std::string> options) {
  for (const char* argument : {"--", "cat", "/proc/self/environ"}) options.push_back(argument);
  return options;
}

/// Values that launchers lost, expanded or executed.
const Variables& AwkwardValues() {
  static const Variables values = {
      {"HOME_TEXT", "$HOME ${HOME} $(id) ~"},
      {"BACKTICKS", "`id` `touch /tmp/executed`"},
      {"JSON", R"({"a": ["b", 'c'], "d": "\n"})"},
      {"BACKSLASH", "ends with \\"},
      {"NEWLINES", "one\ntwo\r\n\nfour\n"},
      {"SPACES", "  two  spaces\tand a tab "},
      {"dotted.name-x", "dots"},
      {"LONG", std::string(100000, 'x') + "$"},
      {"NOT_UTF8", "\xff\xfe\x80 \xc3"},
      {"CONTROL", "\x01\x1b[31m\x7f"},
      {"EMPTY", ""},
      {"EQUALS", "=a=b=="},
      {"SHELL", "; exit 9 & | > < * ? [ ] # ! \" '"},
  };
  return values;
}

}  // namespace

TEST_CASE("Exported values arrive byte for byte, however awkward") {
  LaunchSetting setting;
  setting.environment = AwkwardValues();
  SECTION("as NAME=VALUE") {
    setting.environment.clear();
    for (const auto& [name, value] : AwkwardValues()) {
      setting.arguments.push_back("--export");
      setting.arguments.push_back(name + "=" + value);
    }
  }
  SECTION("as NAME, of ds-launch's environment") {
    for (const auto& [name, value] : AwkwardValues()) {
      setting.arguments.push_back("--export");
      setting.arguments.push_back(name);
    }
  }
  SECTION("by being in the environment") {}
  setting.arguments.insert(setting.arguments.begin(), {"--num-gpus", "2"});
  setting.arguments = ShowEnvironment(setting.arguments);
  LaunchedJob job(setting);
  REQUIRE(job.Wait() == 0);
  for (int rank : {0, 1}) {
    Variables found = EnvironmentOf(job, rank);
    for (const auto& [name, value] : AwkwardValues()) {
      INFO(name);
      CHECK(found.count(name) == 1);
      CHECK(found[name] == value);
    }
  }
  CHECK(!std::filesystem::exists("/tmp/executed"));
  CHECK(job.NothingLeft());
}

TEST_CASE("Arguments arrive byte for byte, however awkward") {
  LaunchSetting setting;
  setting.arguments = {"--num-gpus", "1", "--", "printf", "<%s>"};
  std::string expected;
  for (const auto& [name, value] : AwkwardValues()) {
    setting.arguments.push_back(value);
    expected += "<" + value + ">";
  }
  for (const char* ours : {"--set", "--", "-h", "--dry_run"}) {  // behind `--` nothing is ds-launch's
    setting.arguments.push_back(ours);
    expected += std::string("<") + ours + ">";
  }
  LaunchedJob job(setting);
  REQUIRE(job.Wait() == 0);
  CHECK(job.Log(0) == expected + "\n");
  CHECK(job.NothingLeft());
}

TEST_CASE("Programs get torchrun's and DeepSpeed's variables") {
  LaunchSetting setting;
  setting.hosts = "127.0.0.1 slots=1\n127.0.0.2 slots=2\n";
  setting.environment = {
      {"RANK", "77"}, {"TORCHELASTIC_RUN_ID", "outer"}, {"LOCAL_RANK", "5"}};  // of an outer launcher
  setting.arguments = ShowEnvironment(
      {"--hostfile", "hosts", "--set", "launch.restarts=3", "--master-addr", "10.9.8.7", "--master_port", "4321"});
  LaunchedJob job(setting);
  REQUIRE(job.Wait() == 0);
  const std::string run = job.run_id();
  for (int rank : {0, 1, 2}) {
    const int node = rank == 0 ? 0 : 1, local = rank == 2 ? 1 : 0;
    const std::string local_size = rank == 0 ? "1" : "2";
    const Variables expected = {{"RANK", std::to_string(rank)},
                                {"ROLE_RANK", std::to_string(rank)},
                                {"ROLE_NAME", "default"},
                                {"WORLD_SIZE", "3"},
                                {"ROLE_WORLD_SIZE", "3"},
                                {"LOCAL_RANK", std::to_string(local)},
                                {"LOCAL_WORLD_SIZE", local_size},
                                {"LOCAL_SIZE", local_size},
                                {"GROUP_RANK", std::to_string(node)},
                                {"CROSS_RANK", std::to_string(node)},
                                {"GROUP_WORLD_SIZE", "2"},
                                {"CROSS_SIZE", "2"},
                                {"MASTER_ADDR", "10.9.8.7"},
                                {"MASTER_PORT", "4321"},
                                {"TORCHELASTIC_RESTART_COUNT", "0"},
                                {"TORCHELASTIC_MAX_RESTARTS", "3"},
                                {"TORCHELASTIC_RUN_ID", run},
                                {"TORCHELASTIC_USE_AGENT_STORE", "False"},
                                {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"},
                                {"DS_RUN_ID", run}};
    Variables found = EnvironmentOf(job, rank);
    for (const auto& [name, value] : expected) {
      INFO("rank " << rank << " " << name);
      CHECK(found[name] == value);
    }
    CHECK(std::stoi(found["OMP_NUM_THREADS"]) >= 1);
  }
}

TEST_CASE("What is set only where it is not set yields to the user") {
  LaunchSetting setting;
  setting.environment = {{"TORCH_NCCL_ASYNC_ERROR_HANDLING", "3"}, {"OMP_NUM_THREADS", "9"}};
  setting.arguments = ShowEnvironment({"--num-gpus", "1", "--export", "ROLE_NAME=trainer"});
  LaunchedJob job(setting);
  REQUIRE(job.Wait() == 0);
  Variables found = EnvironmentOf(job, 0);
  CHECK(found["TORCH_NCCL_ASYNC_ERROR_HANDLING"] == "3");
  CHECK(found["OMP_NUM_THREADS"] == "9");
  CHECK(found["ROLE_NAME"] == "trainer");
}

TEST_CASE("A restart is counted for the program") {
  LaunchSetting setting;
  setting.arguments = {
      "--num-gpus", "1",  "--set", "launch.restarts=1",
      "--",         "sh", "-c",    "echo count $TORCHELASTIC_RESTART_COUNT; exit $((1 - TORCHELASTIC_RESTART_COUNT))"};
  LaunchedJob job(setting);
  REQUIRE(job.Wait() == 0);
  CHECK(job.Log(0) == "count 0\ncount 1\n");
}

TEST_CASE(".deepspeed_env of home and of the working directory, then --export") {
  ds::test::TemporaryFolder home, other;
  std::ofstream(home.path() + "/.deepspeed_env", std::ios::binary)
      << "# for all jobs\r\n\r\nexport HOME_ONLY=$HOME `id`\r\nBOTH=home\r\nALL=home";
  std::ofstream(other.path() + "/env", std::ios::binary) << "BOTH='named $x'\nALL=named\n";
  LaunchSetting setting;
  setting.environment = {{"HOME", home.path()}, {"ALL", "inherited"}, {"DS_ENV_FILE", ""}};
  setting.arguments = ShowEnvironment({"--num-gpus", "1", "--export", "ALL=export"});
  SECTION("home and working directory") {
    setting.shell_prelude = "printf 'BOTH=\"here\"\\nALL=here\\n' > .deepspeed_env";
    LaunchedJob job(setting);
    REQUIRE(job.Wait() == 0);
    Variables found = EnvironmentOf(job, 0);
    CHECK(found["HOME_ONLY"] == "$HOME `id`");
    CHECK(found["BOTH"] == "here");
    CHECK(found["ALL"] == "export");
  }
  SECTION("DS_ENV_FILE") {
    setting.environment["DS_ENV_FILE"] = other.path() + "/env";
    LaunchedJob job(setting);
    REQUIRE(job.Wait() == 0);
    Variables found = EnvironmentOf(job, 0);
    CHECK(found["BOTH"] == "named $x");
    CHECK(found["ALL"] == "export");
    CHECK(found.count("HOME_ONLY") == 0);
  }
  SECTION("a bad line") {
    setting.shell_prelude = "printf 'A=1\\nB: secret\\n' > .deepspeed_env";
    LaunchedJob job(setting);
    REQUIRE(job.Wait() == 2);
    CHECK(job.output().find(".deepspeed_env:2:3: ") != std::string::npos);
    CHECK(job.output().find("secret") == std::string::npos);
  }
  SECTION("a value that no process can be given") {
    std::ofstream(other.path() + "/env", std::ios::binary) << "LONG=" << std::string(131072, 'x') << "\n";
    setting.environment["DS_ENV_FILE"] = other.path() + "/env";
    LaunchedJob job(setting);
    REQUIRE(job.Wait() == 2);
    CHECK(job.output().find("env:1:1: LONG: 131072 bytes, and Linux starts no process") != std::string::npos);
  }
  SECTION("DS_ENV_FILE that does not exist") {
    setting.environment["DS_ENV_FILE"] = "nowhere";
    LaunchedJob job(setting);
    REQUIRE(job.Wait() == 2);
    CHECK(job.output().find("DS_ENV_FILE=nowhere: there is no such file") != std::string::npos);
  }
}

TEST_CASE("launch.env reaches ds-worker byte for byte, and yields to --export") {
  LaunchSetting setting;
  setting.arguments = {"fake.yaml", "--num-gpus", "2", "--export", "BOTH=export"};
  // Double-quoted YAML for the bytes that plain text could not hold.
  for (const char* value : {"BOTH=env", R"(TEXT="$HOME `id` \"q\" 'q' \\ # \t")", R"(LINES="one\ntwo\n")",
                            R"(dotted.name="x=y")", R"(EMPTY="")"})
    setting.arguments.insert(setting.arguments.end(), {"--set", std::string("launch.env.") + value});
  LaunchedJob job(setting);
  REQUIRE(job.WaitForStep(1));
  for (int rank : {0, 1}) {
    std::ifstream file("/proc/" + std::to_string(job.Worker(rank)) + "/environ", std::ios::binary);
    const std::string all = '\0' + std::string((std::istreambuf_iterator<char>(file)), {});
    const auto has = [&](const std::string& variable) { return all.find('\0' + variable + '\0') != std::string::npos; };
    CHECK(has("BOTH=export"));
    CHECK(has("TEXT=$HOME `id` \"q\" 'q' \\ # \t"));
    CHECK(has("LINES=one\ntwo\n"));
    CHECK(has("dotted.name=x=y"));
    CHECK(has("EMPTY="));
  }
  job.Signal(SIGINT);
  job.Signal(SIGINT);
  CHECK(job.Wait() == 130);
  CHECK(job.NothingLeft());
}

TEST_CASE("Python scripts and modules") {
  LaunchSetting setting;
  setting.shell_prelude =
      "mkdir package bin; printf 'import sys; print(sys.stdout.write_through, sys.argv[1:])\\n' | tee script.py > "
      "package/__init__.py; cp script.py package/__main__.py; : > package/__init__.py; "
      "printf '#!/bin/sh\\necho \"as it is: $1\"\\n' > shell.py; chmod +x shell.py; "
      "printf '#!/bin/sh\\necho \"interpreter: $*\"\\n' > bin/mine; chmod +x bin/mine";
  std::string expected;
  const bool python = std::system("command -v python3 > /dev/null") == 0;
  SECTION("a script that nobody made executable") {
    setting.arguments = {"--no_local_rank", "--num-gpus", "1", "--", "script.py", "--local", "a b"};
    expected = "True ['--local', 'a b']\n";
  }
  SECTION("a module") {
    setting.arguments = {"--module", "--num-gpus", "1", "--", "package", "x"};
    expected = "True ['x']\n";
  }
  if (!python && !expected.empty()) {
    WARN("no python3 here: not tried");
    return;
  }
  SECTION("--no-python") {
    setting.arguments = {"--no_python", "--num-gpus", "1", "--", "./shell.py", "x"};
    expected = "as it is: x\n";
  }
  SECTION("PYTHON_EXEC") {
    setting.environment = {{"PYTHON_EXEC", "bin/mine"}};
    setting.arguments = {"--num-gpus", "1", "--", "script.py", "x"};
    expected = "interpreter: -u script.py x\n";
  }
  if (expected.empty()) return;
  LaunchedJob job(setting);
  const int code = job.Wait();
  INFO(job.output());
  REQUIRE(code == 0);
  CHECK(job.Log(0) == expected);
}

TEST_CASE("A program and a working directory whose names are no UTF-8") {
  LaunchSetting setting;
  setting.shell_prelude = "mkdir 'd\xff'; cd 'd\xff'; printf '#!/bin/sh\\npwd\\n' > 'p\xff'; chmod +x 'p\xff'";
  SECTION("are no matter") {
    setting.arguments = {"--num-gpus", "1", "--output", "../runs", "--", "./p\xff"};
    LaunchedJob job(setting);
    REQUIRE(job.Wait() == 0);
    CHECK(job.Log(0).ends_with("/d\xff\n"));
    CHECK(job.run_directory().find("/runs/p\xef\xbf\xbd/") != std::string::npos);
    CHECK(job.NothingLeft());
  }
  SECTION("and one that does not exist is named as far as text can") {
    setting.arguments = {"--num-gpus", "1", "--output", "../runs", "--", "./none\xff"};
    LaunchedJob job(setting);
    REQUIRE(job.Wait() == 127);
    CHECK(job.output().find("cannot start ./none\xef\xbf\xbd") != std::string::npos);
    CHECK(job.NothingLeft());
  }
  SECTION("but files name the run directory") {
    setting.arguments = {"--num-gpus", "1", "--", "./p\xff"};
    LaunchedJob job(setting);
    REQUIRE(job.Wait() == 2);
    CHECK(job.output().find("its path is not UTF-8") != std::string::npos);
  }
}

TEST_CASE("A working directory that is gone") {
  LaunchSetting setting;
  setting.shell_prelude = "mkdir gone; cd gone; rmdir ../gone";
  setting.arguments = {"--num-gpus", "1", "--output", "/tmp", "--", "true"};
  LaunchedJob job(setting);
  REQUIRE(job.Wait() == 2);
  CHECK(job.output().find("the working directory cannot be found") != std::string::npos);
}

namespace {

uint16_t MasterPort(const LaunchedJob& job) {
  std::string text;
  REQUIRE(ds::test::Eventually(10, [&] { return (text = job.Log(0)).ends_with('\n'); }));
  return static_cast<uint16_t>(std::stoi(text));
}

}  // namespace

TEST_CASE("MASTER_PORT: of its job alone, outside the ephemeral range, free when the workers start") {
  LaunchSetting setting;
  setting.arguments = {"--num-gpus", "1", "--", "sh", "-c", "echo $MASTER_PORT; exec sleep 1000"};
  std::vector<std::unique_ptr<LaunchedJob>> jobs;
  std::set<uint16_t> ports;
  int low = 0, high = 0;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> low >> high;
  for (int i = 0; i < 3; ++i) jobs.push_back(std::make_unique<LaunchedJob>(setting));
  for (const auto& job : jobs) {
    const uint16_t port = MasterPort(*job);
    ports.insert(port);
    CHECK(((port < low) || (port > high)));
    CHECK(ds::test::CanBind(port, false));
  }
  CHECK(ports.size() == 3);
  for (const auto& job : jobs) {
    job->Signal(SIGINT);
    job->Signal(SIGINT);
    CHECK(job->Wait() == 130);
    CHECK(job->NothingLeft());
  }
}
