#include "runtime/base/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <fstream>
#include <map>
#include <mutex>
#include <thread>

#include "runtime/base/error.h"
#include "runtime/base/signal.h"
#include "runtime/base/text.h"

extern char** environ;

namespace ds {
namespace {

std::vector<std::string> CopyEnvironment() {
  std::vector<std::string> variables;
  for (char** p = environ; *p; ++p) variables.emplace_back(*p);
  return variables;
}

/// Taken before main, so before anybody's setenv.
const std::vector<std::string> inherited_environment = CopyEnvironment();

std::string FindProgram(const std::string& name, const std::vector<std::string>& environment) {
  if (name.find('/') != std::string::npos) return name;
  std::string path = "/usr/local/bin:/usr/bin:/bin";
  for (const std::string& variable : environment) {
    if (variable.starts_with("PATH=")) path = variable.substr(5);
  }
  for (size_t begin = 0; begin <= path.size();) {
    size_t end = std::min(path.find(':', begin), path.size());
    std::string folder = end == begin ? "." : path.substr(begin, end - begin);
    std::string candidate = folder + "/" + name;
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
    begin = end + 1;
  }
  throw SystemError("cannot find the program " + Shown(name, 400) + " in PATH", ENOENT);
}

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const std::string& s : strings) pointers.push_back(const_cast<char*>(s.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

/// Everything that the child needs, made before the fork: after it nothing may allocate.
struct ChildPlan {
  const char* program;
  char** argv;
  char** environment;
  const char* working_directory;
  int standard[3];
  int report_fd;
  pid_t parent;
  const SpawnOptions* options;
};

[[noreturn]] void FailChild(int report_fd) {
  int error = errno;
  [[maybe_unused]] ssize_t n = ::write(report_fd, &error, sizeof error);
  ::_exit(127);
}

[[noreturn]] void RunChild(const ChildPlan& plan) {
  if (plan.options->new_session) ::setsid();
  if (plan.options->new_group) ::setpgid(0, 0);
  if (plan.options->parent_death_signal != 0) {
    ::prctl(PR_SET_PDEATHSIG, plan.options->parent_death_signal);
    if (::getppid() != plan.parent) ::_exit(127);  // it died before the request
  }
  // The report pipe moves out of the way of 0..2, then the standard streams take their places.
  int report = ::fcntl(plan.report_fd, F_DUPFD_CLOEXEC, 10);
  if (report < 0) ::_exit(127);
  int high[3];
  for (int i = 0; i < 3; ++i) {
    high[i] = ::fcntl(plan.standard[i], F_DUPFD_CLOEXEC, 10);
    if (high[i] < 0) FailChild(report);
  }
  for (int i = 0; i < 3; ++i) {
    if (::dup2(high[i], i) < 0) FailChild(report);
  }
  // All others close at exec, whoever opened them and however.
  ::syscall(SYS_close_range, 3U, ~0U, 4U /* CLOSE_RANGE_CLOEXEC */);
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  for (int signal = 1; signal < NSIG; ++signal) ::sigaction(signal, &standard, nullptr);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (plan.working_directory && ::chdir(plan.working_directory) != 0) FailChild(report);
  ::execve(plan.program, plan.argv, plan.environment);
  FailChild(report);
}

/// What execve's error is about where that is not the program itself: its interpreter, or what it is handed.
std::string WhatIsMissing(const std::string& program, const SpawnOptions& options, int error) {
  if (error == E2BIG) {
    size_t bytes = 0;
    for (const auto* list : {&options.argv, &options.environment})
      for (const std::string& text : *list) bytes += text.size() + 1 + sizeof(char*);
    return ": its arguments and environment have " + std::to_string(bytes) +
           " bytes, more than the system hands to a process (a quarter of `ulimit -s`): hand values over in a file";
  }
  const std::string path =
      program[0] == '/' || options.working_directory.empty() ? program : options.working_directory + "/" + program;
  if (error != ENOENT || ::access(path.c_str(), F_OK) != 0) return "";
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  if (!line.starts_with("#!")) return ": the file is there, and its dynamic loader is not (`file` names it)";
  const size_t begin = std::min(line.find_first_not_of(" \t", 2), line.size());
  const size_t end = line.find_first_of(" \t", begin);
  return ": its first line names the interpreter " + Shown(line.substr(begin, end - begin), 200) +
         ", which is not there" +
         (line.ends_with('\r') ? " (the line ends in CRLF, and the carriage return is taken for part of it)" : "");
}

}  // namespace

pid_t Spawn(const SpawnOptions& options) {
  std::string program = FindProgram(options.argv.at(0), options.environment);
  std::vector<char*> argv = Pointers(options.argv), environment = Pointers(options.environment);
  int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  int report[2];
  if (null < 0 || ::pipe2(report, O_CLOEXEC) != 0) {
    int error = errno;
    if (null >= 0) ::close(null);
    throw SystemError("cannot start " + Shown(program, 400), error);
  }
  ChildPlan plan{
      program.c_str(),
      argv.data(),
      environment.data(),
      options.working_directory.empty() ? nullptr : options.working_directory.c_str(),
      {options.stdin_fd >= 0 ? options.stdin_fd : null, options.stdout_fd >= 0 ? options.stdout_fd : STDOUT_FILENO,
       options.stderr_fd >= 0 ? options.stderr_fd : STDERR_FILENO},
      report[1],
      ::getpid(),
      &options};
  // vfork: the child runs on this thread's memory, and this thread waits, until the child executes its program. Copying
  // the page tables of a program with threads and gRPC costs more than all the rest. Signals are blocked meanwhile: a
  // handler would run on that memory twice over; the child sets its own before it unblocks them.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, &before);
  pid_t pid = ::vfork();
  if (pid == 0) RunChild(plan);
  int error = pid < 0 ? errno : 0;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ::close(report[1]);
  ::close(null);
  if (pid > 0) {
    ssize_t n;
    while ((n = ::read(report[0], &error, sizeof error)) < 0 && errno == EINTR) {
    }
    if (n != sizeof error) error = 0;  // closed by exec: it runs
  }
  ::close(report[0]);
  if (error != 0) {
    if (pid > 0) ::waitpid(pid, nullptr, 0);
    std::string where = options.working_directory.empty() ? "" : " in " + Shown(options.working_directory, 400);
    throw SystemError("cannot start " + Shown(program, 400) + where + WhatIsMissing(program, options, error), error);
  }
  return pid;
}

const std::vector<std::string>& InheritedEnvironment() { return inherited_environment; }

void SetVariable(std::vector<std::string>& environment, std::string_view name, std::string_view value) {
  std::string prefix = std::string(name) + "=";
  std::erase_if(environment, [&](const std::string& v) { return v.starts_with(prefix); });
  environment.push_back(prefix + std::string(value));
}

std::string EndText(const ProcessEnd& end) {
  if (end.signal != 0) return "killed by signal " + std::to_string(end.signal) + " (" + SignalName(end.signal) + ")";
  return "exit code " + std::to_string(end.code);
}

struct ProcessWatcher::Impl {
  OnEnd on_end;
  int wake_fd = -1;
  std::mutex mutex;
  bool stop = false;
  std::map<int, pid_t> watched;  ///< pidfd -> pid
  std::thread thread;

  void Run() {
    for (;;) {
      std::vector<pollfd> fds{{wake_fd, POLLIN, 0}};
      {
        std::lock_guard lock(mutex);
        if (stop) return;
        for (auto [fd, pid] : watched) fds.push_back({fd, POLLIN, 0});
      }
      if (::poll(fds.data(), fds.size(), -1) < 0) continue;
      if (fds[0].revents) {
        uint64_t count;
        [[maybe_unused]] ssize_t n = ::read(wake_fd, &count, sizeof count);
      }
      for (size_t i = 1; i < fds.size(); ++i) {
        if (fds[i].revents) Reap(fds[i].fd);
      }
    }
  }

  void Reap(int fd) {
    pid_t pid;
    {
      std::lock_guard lock(mutex);
      pid = watched.at(fd);
      watched.erase(fd);
    }
    int status = 0;
    ProcessEnd end{1, 0};
    if (::waitpid(pid, &status, 0) == pid) {
      end = WIFSIGNALED(status) ? ProcessEnd{0, WTERMSIG(status)} : ProcessEnd{WEXITSTATUS(status), 0};
    }
    ::close(fd);
    on_end(pid, end);
  }
};

ProcessWatcher::ProcessWatcher(OnEnd on_end) : impl_(std::make_unique<Impl>()) {
  impl_->on_end = std::move(on_end);
  impl_->wake_fd = ::eventfd(0, EFD_CLOEXEC);
  if (impl_->wake_fd < 0) throw SystemError("cannot watch for processes", errno);
  impl_->thread = std::thread([this] { impl_->Run(); });
}

ProcessWatcher::~ProcessWatcher() {
  {
    std::lock_guard lock(impl_->mutex);
    impl_->stop = true;
  }
  uint64_t one = 1;
  [[maybe_unused]] ssize_t n = ::write(impl_->wake_fd, &one, sizeof one);
  impl_->thread.join();
  for (auto [fd, pid] : impl_->watched) ::close(fd);
  ::close(impl_->wake_fd);
}

void ProcessWatcher::Watch(pid_t pid) {
  // A child that has ended stays a zombie until Reap, so its number cannot be another's here.
  int fd = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
  if (fd < 0) {
    int error = errno;
    ::kill(pid, SIGKILL);  // nobody would learn of its end
    ::waitpid(pid, nullptr, 0);
    throw SystemError("cannot watch process " + std::to_string(pid), error);
  }
  {
    std::lock_guard lock(impl_->mutex);
    impl_->watched[fd] = pid;
  }
  uint64_t one = 1;
  [[maybe_unused]] ssize_t n = ::write(impl_->wake_fd, &one, sizeof one);
}

std::string ExecutablePath() {
  char path[PATH_MAX];
  ssize_t n = ::readlink("/proc/self/exe", path, sizeof path);
  if (n <= 0) throw SystemError("cannot read /proc/self/exe", errno);
  return std::string(path, static_cast<size_t>(n));
}

std::string ExecutableFolder() {
  const std::string executable = ExecutablePath();
  return executable.substr(0, executable.rfind('/'));
}

}  // namespace ds
