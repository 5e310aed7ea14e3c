#include "runtime/base/stacks.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/symbols.h"

namespace ds {
namespace {

constexpr int kMaxFrames = 64;
constexpr size_t kHandlerStack = 128 << 10;  // frames of AVX-512 and AMX state need some 12 KiB of it
constexpr auto kAnswer = std::chrono::milliseconds(300), kAnswers = std::chrono::milliseconds(2000);

int StackSignal() { return SIGRTMIN + 7; }

struct Witness {
  pid_t thread;
  std::string name;
  void* handler_stack;
};

/// One question at a time: asked -> writing -> written, or asked -> idle when no answer came.
struct Question {
  enum State : int { idle, asked, writing, written };
  std::atomic<int> state{idle};
  std::atomic<pid_t> thread{0};
  void* frames[kMaxFrames];
  int count = 0;
  sem_t answered;
};

std::mutex mutex;
std::vector<Witness>& Witnesses() {
  static auto* witnesses = new std::vector<Witness>;  // threads may outlive static objects
  return *witnesses;
}
Question question;
thread_local pid_t this_thread = 0;

/// In the thread that is asked, on a stack of its own, in the middle of anything: atomics, backtrace(3) (which was
/// warmed up: later calls neither allocate nor load) and sem_post(3) alone.
void Answer(int, siginfo_t*, void*) {
  const int before = errno;
  int asked = Question::asked;
  if (question.thread == this_thread && question.state.compare_exchange_strong(asked, Question::writing)) {
    question.count = ::backtrace(question.frames, kMaxFrames);
    question.state = Question::written;
    ::sem_post(&question.answered);
  }
  errno = before;
}

void PrepareOnce() {
  static const bool prepared = [] {
    ::sem_init(&question.answered, 0, 0);
    void* frames[2];
    ::backtrace(frames, 2);
    struct sigaction action {};
    action.sa_sigaction = Answer;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    ::sigfillset(&action.sa_mask);
    ::sigaction(StackSignal(), &action, nullptr);
    return true;
  }();
  (void)prepared;
}

std::vector<void*> Ask(pid_t thread) {
  while (::sem_trywait(&question.answered) == 0) {  // an answer that nobody waited for
  }
  question.thread = thread;
  question.state = Question::asked;
  if (::syscall(SYS_tgkill, ::getpid(), thread, StackSignal()) != 0) {
    question.state = Question::idle;
    return {};
  }
  timespec until{};
  ::clock_gettime(CLOCK_REALTIME, &until);
  until.tv_nsec += std::chrono::nanoseconds(kAnswer).count();
  until.tv_sec += until.tv_nsec / 1'000'000'000;
  until.tv_nsec %= 1'000'000'000;
  while (::sem_timedwait(&question.answered, &until) != 0) {
    int asked = Question::asked;
    if (errno == ETIMEDOUT && question.state.compare_exchange_strong(asked, Question::idle)) return {};
    if (errno == ETIMEDOUT) ::sched_yield();  // it is writing
  }
  std::vector<void*> frames(question.frames, question.frames + question.count);
  question.state = Question::idle;
  return frames;
}

std::string Line(const std::filesystem::path& path) {
  std::FILE* file = std::fopen(path.c_str(), "re");
  if (!file) return "";
  char block[4096];
  const size_t n = std::fread(block, 1, sizeof block, file);
  std::fclose(file);
  std::string text(block, n);
  while (!text.empty() && (text.back() == '\n' || text.back() == '\0')) text.pop_back();
  return text;
}

/// "200 (name) S 1 ...": the letter.
char StateOf(const std::string& stat) {
  const size_t end = stat.rfind(')');
  return end != std::string::npos && end + 2 < stat.size() ? stat[end + 2] : '?';
}

const char* StateText(char state) {
  switch (state) {
    case 'R':
      return "running";
    case 'S':
      return "asleep";
    case 'D':
      return "in the kernel, not to be interrupted";
    case 'T':
      return "stopped";
    case 't':
      return "stopped by a debugger";
    case 'Z':
      return "ended";
    default:
      return "in an unknown state";
  }
}

/// "202 0x7f... 0x80 ...": the call's number, by name where it is one of those that threads wait in.
std::string CallText(const std::string& text) {
  static const std::pair<long, const char*> names[] = {
      {SYS_read, "read"},       {SYS_write, "write"},
      {SYS_poll, "poll"},       {SYS_ppoll, "ppoll"},
      {SYS_futex, "futex"},     {SYS_epoll_wait, "epoll_wait"},
      {SYS_select, "select"},   {SYS_pselect6, "pselect6"},
      {SYS_wait4, "wait4"},     {SYS_waitid, "waitid"},
      {SYS_recvfrom, "recv"},   {SYS_recvmsg, "recvmsg"},
      {SYS_sendto, "send"},     {SYS_sendmsg, "sendmsg"},
      {SYS_connect, "connect"}, {SYS_accept, "accept"},
      {SYS_accept4, "accept4"}, {SYS_epoll_pwait, "epoll_pwait"},
      {SYS_fsync, "fsync"},     {SYS_fdatasync, "fdatasync"},
      {SYS_openat, "openat"},   {SYS_clock_nanosleep, "clock_nanosleep"},
      {SYS_pause, "pause"},     {SYS_nanosleep, "nanosleep"},
      {SYS_flock, "flock"},     {SYS_fcntl, "fcntl"},
      {SYS_ioctl, "ioctl"},     {SYS_rt_sigtimedwait, "rt_sigtimedwait"},
      {SYS_pwrite64, "pwrite"}, {SYS_pread64, "pread"},
      {SYS_writev, "writev"},   {SYS_readv, "readv"},
      {SYS_rename, "rename"},   {SYS_io_uring_enter, "io_uring_enter"}};
  if (text.empty() || text == "running" || text[0] == '-') return "";
  const long number = std::strtol(text.c_str(), nullptr, 10);
  for (const auto& [known, name] : names)
    if (known == number) return name;
  return "system call " + std::to_string(number);
}

std::string ThreadText(const std::filesystem::path& task) {
  const std::string wait = Line(task / "wchan"), call = CallText(Line(task / "syscall"));
  std::string text = "thread " + task.filename().string() + " (" + Line(task / "comm") +
                     "): " + StateText(StateOf(Line(task / "stat")));
  if (!call.empty()) text += ", in " + call;
  if (!wait.empty() && wait != "0") text += ", waiting in the kernel's " + wait;
  text += "\n";
  const std::string stack = Line(task / "stack");
  for (size_t begin = 0; begin < stack.size();) {
    const size_t end = std::min(stack.find('\n', begin), stack.size());
    text += "    kernel: " + stack.substr(begin, end - begin) + "\n";
    begin = end + 1;
  }
  return text;
}

/// Folders below `path` whose names are numbers, in their order.
std::vector<std::filesystem::path> Numbered(const std::filesystem::path& path) {
  std::vector<std::pair<long, std::filesystem::path>> found;
  std::error_code error;
  for (std::filesystem::directory_iterator i(path, error), end; !error && i != end; i.increment(error)) {
    const long number = std::strtol(i->path().filename().c_str(), nullptr, 10);
    if (number > 0) found.emplace_back(number, i->path());
  }
  std::sort(found.begin(), found.end());
  std::vector<std::filesystem::path> paths;
  for (auto& [number, folder] : found) paths.push_back(std::move(folder));
  return paths;
}

}  // namespace

StackWitness::StackWitness(std::string name) {
  std::lock_guard lock(mutex);
  PrepareOnce();
  this_thread = static_cast<pid_t>(::syscall(SYS_gettid));
  void* memory = ::mmap(nullptr, kHandlerStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED) throw SystemError("no memory for a thread's signal stack", errno);
  stack_t stack{};
  stack.ss_sp = memory;
  stack.ss_size = kHandlerStack;
  if (::sigaltstack(&stack, nullptr) != 0) {
    const int error = errno;
    ::munmap(memory, kHandlerStack);
    throw SystemError("a thread's signal stack is refused", error);
  }
  Witnesses().push_back({this_thread, std::move(name), memory});
}

StackWitness::~StackWitness() {
  std::lock_guard lock(mutex);
  stack_t none{};
  none.ss_flags = SS_DISABLE;
  ::sigaltstack(&none, nullptr);
  std::erase_if(Witnesses(), [](const Witness& witness) {
    if (witness.thread != this_thread) return false;
    ::munmap(witness.handler_stack, kHandlerStack);
    return true;
  });
  this_thread = 0;
}

std::string AllStacks() {
  const auto begin = std::chrono::steady_clock::now();
  std::lock_guard lock(mutex);
  std::string text, rest;
  for (const std::filesystem::path& task : Numbered("/proc/self/task")) {
    const pid_t thread = static_cast<pid_t>(std::strtol(task.filename().c_str(), nullptr, 10));
    const auto found = std::find_if(Witnesses().begin(), Witnesses().end(),
                                    [&](const Witness& witness) { return witness.thread == thread; });
    if (found == Witnesses().end()) {
      rest += ThreadText(task);
      continue;
    }
    text += found->name + ", " + ThreadText(task);
    std::vector<void*> frames;
    if (std::chrono::steady_clock::now() - begin < kAnswers) frames = Ask(thread);
    if (frames.empty()) text += "    it does not answer\n";
    // The first two are the handler and what the kernel put below it.
    for (size_t i = std::min<size_t>(2, frames.size()); i < frames.size(); ++i) {
      char number[40];
      std::snprintf(number, sizeof number, "    #%-2zu ", i - 2);
      // A return address may lie behind the end of its function: the call is before it.
      const auto* address = static_cast<const char*>(frames[i]) - (i == 2 ? 0 : 1);
      text += number + SymbolOf(address) + "\n";
    }
  }
  return text + rest;
}

std::string ThreadsOf(pid_t pid) {
  const std::filesystem::path process = "/proc/" + std::to_string(pid);
  std::string text;
  for (const std::filesystem::path& task : Numbered(process / "task")) text += ThreadText(task);
  return text.empty() ? "process " + std::to_string(pid) + " is gone\n" : text;
}

bool IsStopped(pid_t pid) { return StateOf(Line("/proc/" + std::to_string(pid) + "/stat")) == 'T'; }

std::string ThreadsOfGroup(pid_t group) {
  std::string text;
  for (const std::filesystem::path& process : Numbered("/proc")) {
    const std::string stat = Line(process / "stat");
    const size_t end = stat.rfind(')');
    long parent = 0, of = 0;
    if (end == std::string::npos || std::sscanf(stat.c_str() + end + 2, "%*c %ld %ld", &parent, &of) != 2) continue;
    if (of != group) continue;
    text += "process " + process.filename().string() + "\n" +
            ThreadsOf(static_cast<pid_t>(std::strtol(process.filename().c_str(), nullptr, 10)));
  }
  return text.empty() ? "process group " + std::to_string(group) + " is gone\n" : text;
}

}  // namespace ds
