// Descendants of this process, found in /proc.
#include <dirent.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>

#include "runtime/base/process.h"

namespace ds {
namespace {

struct Stat {
  char state = 0;
  pid_t parent = 0;
  uint64_t start_time = 0;
};

/// Fields 3, 4 and 22 of /proc/PID/stat; the command (field 2) is in parentheses and may hold anything.
bool ReadStat(pid_t pid, Stat& stat) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  if (!std::getline(file, text, '\0') || text.rfind(')') == std::string::npos) return false;
  std::istringstream fields(text.substr(text.rfind(')') + 1));
  std::string skipped;
  fields >> stat.state >> stat.parent;
  for (int i = 5; i < 22; ++i) fields >> skipped;
  return static_cast<bool>(fields >> stat.start_time);
}

std::map<pid_t, Stat> AllProcesses() {
  std::map<pid_t, Stat> processes;
  DIR* folder = ::opendir("/proc");
  if (!folder) return processes;
  while (dirent* entry = ::readdir(folder)) {
    pid_t pid = std::atoi(entry->d_name);
    Stat stat;
    if (pid > 0 && ReadStat(pid, stat)) processes[pid] = stat;
  }
  ::closedir(folder);
  return processes;
}

/// Descendants below `root`, not entering those in `spared`.
void Collect(const std::map<pid_t, Stat>& processes, pid_t root, const std::vector<ProcessId>& spared,
             std::vector<ProcessId>& found) {
  for (const auto& [pid, stat] : processes) {
    ProcessId id{pid, stat.start_time};
    if (stat.parent != root || std::find(spared.begin(), spared.end(), id) != spared.end()) continue;
    if (stat.state != 'Z' && stat.state != 'X') found.push_back(id);
    Collect(processes, pid, spared, found);
  }
}

}  // namespace

ProcessId IdentifyProcess(pid_t pid) {
  Stat stat;
  return ReadStat(pid, stat) ? ProcessId{pid, stat.start_time} : ProcessId{pid, 0};
}

bool IsRunning(const ProcessId& id) {
  Stat stat;
  return ReadStat(id.pid, stat) && stat.start_time == id.start_time && stat.state != 'Z' && stat.state != 'X';
}

std::vector<ProcessId> Descendants() {
  std::vector<ProcessId> found;
  Collect(AllProcesses(), ::getpid(), {}, found);
  return found;
}

void BecomeSubreaper() { ::prctl(PR_SET_CHILD_SUBREAPER, 1); }

int KillDescendants(const std::vector<ProcessId>& spared, double patience_seconds) {
  auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(patience_seconds);
  std::vector<ProcessId> killed;
  for (;;) {
    std::vector<ProcessId> left;
    Collect(AllProcesses(), ::getpid(), spared, left);
    if (left.empty()) break;
    for (const ProcessId& id : left) {
      ::kill(id.pid, SIGKILL);
      if (std::find(killed.begin(), killed.end(), id) == killed.end()) killed.push_back(id);
    }
    if (std::chrono::steady_clock::now() > until) break;
    // A killed process ends within a scheduling quantum; its children are then ours to find in the next round.
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    for (const ProcessId& id : killed) ::waitpid(id.pid, nullptr, WNOHANG);
  }
  for (const ProcessId& id : killed) ::waitpid(id.pid, nullptr, WNOHANG);
  return static_cast<int>(killed.size());
}

}  // namespace ds
