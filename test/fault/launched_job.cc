#include "test/fault/launched_job.h"

#include <dirent.h>
#include <fcntl.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "runtime/base/error.h"
#include "runtime/base/json.h"
#include "runtime/base/process.h"
#include "test/catch.h"

namespace ds::test {
namespace {

namespace fs = std::filesystem;

/// Empty where it cannot be read: a process may end while its files are.
std::string ReadAll(const fs::path& path) {
  try {
    std::ifstream file(path, std::ios::binary);
    return std::string((std::istreambuf_iterator<char>(file)), {});
  } catch (const std::ios_base::failure&) {
    return "";
  }
}

void WriteAll(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

std::string JobText(int steps) {
  return "job: {name: fake}\nmodel: {preset: gpt2-tiny}\ndata: {train: text.txt}\ntraining: {steps: " +
         std::to_string(steps) + "}\ndeepspeed: {train_micro_batch_size_per_gpu: 1, optimizer: {type: AdamW}}\n";
}

bool Alive(pid_t pid) {
  std::string stat = ReadAll("/proc/" + std::to_string(pid) + "/stat");
  size_t end = stat.rfind(')');
  return end != std::string::npos && end + 2 < stat.size() && stat[end + 2] != 'Z' && stat[end + 2] != 'X';
}

/// Living processes for which `matches` holds, by /proc/PID.
std::vector<pid_t> Processes(const std::function<bool(const fs::path&)>& matches) {
  std::vector<pid_t> found;
  DIR* folder = ::opendir("/proc");
  while (dirent* entry = ::readdir(folder)) {
    pid_t pid = std::atoi(entry->d_name);
    if (pid > 0 && Alive(pid) && matches(fs::path("/proc") / entry->d_name)) found.push_back(pid);
  }
  ::closedir(folder);
  return found;
}

}  // namespace

TemporaryFolder::TemporaryFolder() {
  char pattern[] = "/tmp/ds-fault-XXXXXX";
  if (!::mkdtemp(pattern)) throw std::runtime_error("mkdtemp");
  path_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

bool OthersMayRun() {
  if (::geteuid() != 0) {
    WARN("not tested: becoming another user needs root");
    return false;
  }
  const std::string command =
      "setpriv --reuid=65534 --regid=65534 --clear-groups test -x " + std::string(DS_BIN_DIR) + "/ds-launch";
  if (std::system(command.c_str()) == 0) return true;
  WARN("not tested: other users may not run the programs in " << DS_BIN_DIR);
  return false;
}

bool Eventually(double seconds, const std::function<bool()>& condition) {
  auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) return condition();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

LaunchedJob::LaunchedJob(LaunchSetting setting, int steps) : shared_output_(setting.shared_output) {
  const std::string& folder = folder_.path();
  fs::create_directory(folder + "/tmp");
  std::string words;
  for (int i = 0; i < 20000; ++i) words += std::to_string(i) + " ";
  WriteAll(folder + "/text.txt", words);
  WriteAll(folder + "/fake.yaml", JobText(steps));
  if (!setting.hosts.empty()) WriteAll(folder + "/hosts", setting.hosts);

  SpawnOptions options;
  options.argv = {std::string(DS_BIN_DIR) + "/" + setting.program};
  options.argv.insert(options.argv.end(), setting.arguments.begin(), setting.arguments.end());
  if (!setting.shell_prelude.empty()) {
    std::vector<std::string> shell{"/bin/sh", "-c", setting.shell_prelude + "; exec \"$@\"", "sh"};
    options.argv.insert(options.argv.begin(), shell.begin(), shell.end());
  }
  options.environment = InheritedEnvironment();
  SetVariable(options.environment, "TMPDIR", folder + "/tmp");
  // By their environment tests find what a job left; only root reads that of programs that hold keys.
  if (::geteuid() != 0) SetVariable(options.environment, "DS_DEBUGGABLE", "1");
  SetVariable(options.environment, "DS_WORKER_PROGRAM", std::string(DS_BIN_DIR) + "/test-fault-worker");
  for (const auto& [name, value] : setting.environment) SetVariable(options.environment, name, value);
  options.working_directory = folder;
  if (setting.terminal) {
    winsize size{24, 100, 0, 0};
    pid_ = ::forkpty(&terminal_, nullptr, nullptr, &size);
    // Not to be kept: kill(-1, ...) would reach every process of the machine.
    if (pid_ < 0) throw SystemError("cannot start a program on a terminal of its own (is /dev/pts mounted?)", errno);
    if (pid_ == 0) {
      if (::chdir(folder.c_str()) != 0) ::_exit(126);
      std::vector<char*> argv, environment;
      for (std::string& argument : options.argv) argv.push_back(argument.data());
      for (std::string& variable : options.environment) environment.push_back(variable.data());
      argv.push_back(nullptr);
      environment.push_back(nullptr);
      ::execve(argv[0], argv.data(), environment.data());
      ::_exit(127);
    }
    ::fcntl(terminal_, F_SETFL, O_NONBLOCK);
    return;
  }
  int out = ::open((folder + "/out.txt").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  options.stdout_fd = options.stderr_fd = out;
  options.new_group = true;
  pid_ = Spawn(options);
  ::close(out);
}

LaunchedJob::~LaunchedJob() {
  if (!exit_code_) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  NothingLeft(3);  // agents and workers see that the launcher is gone
  if (terminal_ >= 0) ::close(terminal_);
}

void LaunchedJob::Signal(int signal) const { ::kill(pid_, signal); }

int LaunchedJob::Wait(double seconds) {
  int status = 0;
  bool ended = exit_code_ || Eventually(seconds, [&] {
                 DrainTerminal();
                 return ::waitpid(pid_, &status, WNOHANG) == pid_;
               });
  INFO(output());
  REQUIRE(ended);
  if (!exit_code_) exit_code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  DrainTerminal();
  return *exit_code_;
}

void LaunchedJob::DrainTerminal() const {
  char block[4096];
  for (ssize_t n; terminal_ >= 0 && (n = ::read(terminal_, block, sizeof block)) > 0;) {
    terminal_text_.append(block, static_cast<size_t>(n));
  }
}

std::string LaunchedJob::output() const {
  DrainTerminal();
  return terminal_ >= 0 ? terminal_text_ : ReadAll(folder_.path() + "/out.txt");
}

void LaunchedJob::Type(const std::string& keys) const {
  [[maybe_unused]] ssize_t n = ::write(terminal_, keys.data(), keys.size());
}

std::string LaunchedJob::FindRun() const {
  DrainTerminal();
  if (shared_output_) {  // "run PATH: 2 ranks on 1 node"
    const std::string text = output();
    const size_t begin = text.find("run /"), end = text.find(": ", begin);
    return begin == std::string::npos || end == std::string::npos ? "" : text.substr(begin + 4, end - begin - 4);
  }
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder_.path() + "/runs", error)) {
    if (fs::exists(entry.path() / "latest" / "metrics.jsonl")) return fs::canonical(entry.path() / "latest").string();
  }
  return "";
}

std::string LaunchedJob::run_directory() const {
  std::string found;
  Eventually(10, [&] {
    found = FindRun();
    return !found.empty();
  });
  INFO(output());
  REQUIRE(!found.empty());
  return found;
}

std::string LaunchedJob::run_id() const { return fs::path(run_directory()).filename().string(); }

std::vector<Value> LaunchedJob::Lines(const std::string& file) const {
  std::istringstream text(ReadAll(run_directory() + "/" + file));
  std::vector<Value> values;
  for (std::string line; std::getline(text, line) && !text.eof();) values.push_back(ParseJson(line, file));
  return values;
}

bool LaunchedJob::WaitForStep(int step, double seconds) const {
  return Eventually(seconds, [&] {
    DrainTerminal();
    std::vector<Value> lines = Lines("metrics.jsonl");
    return !lines.empty() && std::stoi(Text(lines.back(), "step")) >= step;
  });
}

Value LaunchedJob::Summary() const { return ParseJson(ReadAll(run_directory() + "/summary.json"), "summary.json"); }

bool LaunchedJob::HasEvent(const std::string& kind) const {
  std::vector<Value> lines = Lines("events.jsonl");
  return std::any_of(lines.begin(), lines.end(), [&](const Value& line) { return Text(line, "event") == kind; });
}

std::string LaunchedJob::Log(int rank) const {
  return ReadAll(run_directory() + "/logs/rank-" + std::to_string(rank) + ".log");
}

std::vector<pid_t> LaunchedJob::Workers() const {
  std::string marker = "DS_RUN_ID=" + run_id();
  return Processes([&](const fs::path& process) {
    std::string environment = '\0' + ReadAll(process / "environ");
    return environment.find('\0' + marker + '\0') != std::string::npos;
  });
}

pid_t LaunchedJob::Worker(int rank) const {
  pid_t found = -1;
  std::string argument = std::string("--rank") + '\0' + std::to_string(rank) + '\0';
  Eventually(10, [&] {
    for (pid_t pid : Workers()) {
      if (ReadAll("/proc/" + std::to_string(pid) + "/cmdline").find(argument) != std::string::npos) found = pid;
    }
    return found > 0;
  });
  REQUIRE(found > 0);
  return found;
}

pid_t LaunchedJob::Agent(const std::string& host) const {
  std::string path = run_directory() + "/report/" + host + ".json";
  REQUIRE(Eventually(10, [&] { return fs::exists(path); }));
  return std::stoi(Text(ParseJson(ReadAll(path), path), "agent_pid"));
}

std::vector<pid_t> LaunchedJob::Agents() const {
  std::string marker = "TMPDIR=" + folder_.path() + "/tmp";
  return Processes([&](const fs::path& process) {
    std::error_code error;
    std::string environment = '\0' + ReadAll(process / "environ");
    if (ReadAll(process / "comm") == "ds-agent-keeper\n") return false;
    return fs::read_symlink(process / "exe", error).filename() == "ds-agent" &&
           environment.find('\0' + marker + '\0') != std::string::npos;
  });
}

std::vector<std::string> LaunchedJob::Leftovers() const {
  std::vector<std::string> left;
  // Everything of the job carries this TMPDIR, whatever became of its parents.
  std::string marker = "TMPDIR=" + folder_.path() + "/tmp";
  for (pid_t pid : Processes([&](const fs::path& process) {
         return ('\0' + ReadAll(process / "environ")).find('\0' + marker + '\0') != std::string::npos;
       })) {
    std::string command = ReadAll("/proc/" + std::to_string(pid) + "/cmdline");
    std::replace(command.begin(), command.end(), '\0', ' ');
    left.push_back("process " + std::to_string(pid) + ": " + command);
  }
  for (const auto& entry : fs::directory_iterator(folder_.path() + "/tmp")) left.push_back(entry.path().string());
  return left;
}

bool LaunchedJob::NothingLeft(double seconds) const {
  return Eventually(seconds, [&] { return Leftovers().empty(); });
}

std::string Text(const Value& value, const std::string& key) {
  const Value* field = value.Find(key);
  if (!field) return "absent";
  return field->is_null() ? "null" : field->text;
}

std::string CauseOf(const Value& summary, const std::string& key) {
  const Value* cause = summary.Find("cause");
  return cause && !cause->is_null() ? Text(*cause, key) : "no cause";
}

}  // namespace ds::test
