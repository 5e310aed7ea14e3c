#include "test/cluster/mpirun.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "runtime/base/json.h"
#include "runtime/base/process.h"
#include "test/catch.h"

namespace fs = std::filesystem;

namespace ds::test {
namespace {

std::string ReadAll(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

Mpirun::Mpirun(int ranks, std::vector<std::string> argv, std::map<std::string, std::string> files,
               std::map<std::string, std::string> environment) {
  fs::create_directory(folder() + "/tmp");
  for (const auto& [name, text] : files) std::ofstream(folder() + "/" + name) << text;
  SpawnOptions options;
  if (ranks > 0) options.argv = {"mpirun", "-n", std::to_string(ranks), "--oversubscribe", "--bind-to", "none"};
  options.argv.insert(options.argv.end(), argv.begin(), argv.end());
  options.environment = InheritedEnvironment();
  for (const char* of : {"OMPI", "PRTE"}) {
    for (const char* name : {"_ALLOW_RUN_AS_ROOT", "_ALLOW_RUN_AS_ROOT_CONFIRM"})
      SetVariable(options.environment, std::string(of) + name, "1");
  }
  SetVariable(options.environment, "TMPDIR", folder() + "/tmp");
  SetVariable(options.environment, "OMP_WAIT_POLICY", "passive");
  for (const auto& [name, value] : environment) SetVariable(options.environment, name, value);
  options.working_directory = folder();
  int out = ::open((folder() + "/out.txt").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  options.stdout_fd = options.stderr_fd = out;
  options.new_group = true;
  pid_ = Spawn(options);
  ::close(out);
}

Mpirun::~Mpirun() {
  if (!exit_code_) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  for (pid_t pid : Processes()) ::kill(pid, SIGKILL);
}

int Mpirun::Wait(double seconds) {
  int status = 0;
  bool ended = exit_code_ || Eventually(seconds, [&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; });
  INFO(output());
  REQUIRE(ended);
  if (!exit_code_) exit_code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return *exit_code_;
}

std::string Mpirun::output() const { return ReadAll(folder() + "/out.txt"); }

std::string Mpirun::run_directory() const {
  std::string found;
  Eventually(30, [&] {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder() + "/runs", error)) {
      if (fs::exists(entry.path() / "latest" / "metrics.jsonl"))
        found = fs::canonical(entry.path() / "latest").string();
    }
    return !found.empty();
  });
  INFO(output());
  REQUIRE(!found.empty());
  return found;
}

std::vector<Value> Mpirun::Lines(const std::string& file) const {
  std::istringstream text(ReadAll(run_directory() + "/" + file));
  std::vector<Value> values;
  for (std::string line; std::getline(text, line) && !text.eof();) values.push_back(ParseJson(line, file));
  return values;
}

Value Mpirun::Summary() const { return ParseJson(ReadAll(run_directory() + "/summary.json"), "summary.json"); }

bool Mpirun::WaitForStep(int step, double seconds) const {
  const bool reached = Eventually(seconds, [&] {
    std::vector<Value> lines = Lines("metrics.jsonl");
    return !lines.empty() && std::stoi(Text(lines.back(), "step")) >= step;
  });
  if (!reached) WARN(output());
  return reached;
}

std::vector<pid_t> Mpirun::Processes() const {
  std::vector<pid_t> found;
  std::error_code error;
  const std::string marker = std::string(1, '\0') + "TMPDIR=" + folder() + "/tmp" + std::string(1, '\0');
  for (const auto& entry : fs::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (('\0' + ReadAll(entry.path() / "environ")).find(marker) != std::string::npos) found.push_back(std::stoi(name));
  }
  return found;
}

std::map<int, pid_t> Mpirun::Ranks() const {
  std::map<int, pid_t> ranks;
  for (pid_t pid : Processes()) {
    const std::string environment = '\0' + ReadAll("/proc/" + std::to_string(pid) + "/environ");
    std::error_code error;
    if (fs::read_symlink("/proc/" + std::to_string(pid) + "/exe", error).filename() != "ds-worker") continue;
    std::string name = std::string(1, '\0') + "OMPI_COMM_WORLD_RANK=";
    if (environment.find(name) == std::string::npos) name = std::string(1, '\0') + "SLURM_PROCID=";
    const size_t at = environment.find(name);
    if (at != std::string::npos) ranks[std::atoi(environment.c_str() + at + name.size())] = pid;
  }
  return ranks;
}

bool Mpirun::NothingLeft(double seconds) const {
  return Eventually(seconds, [&] { return Processes().empty(); });
}

}  // namespace ds::test
