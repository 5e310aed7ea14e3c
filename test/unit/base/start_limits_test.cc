// What a program needs to start: a limit that is too low is an error that says which, before anything hangs; and an end
// that does not come by itself comes all the same.
#include "runtime/base/start_limits.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>

#include "runtime/base/end_within.h"
#include "runtime/base/error.h"
#include "test/catch.h"

namespace ds {
namespace {

struct Ended {
  int status = 0;
  std::string text;
  int code() const { return WIFEXITED(status) ? WEXITSTATUS(status) : -1; }
};

/// `body` in a child of its own; what it wrote to standard error.
Ended InChild(const std::function<int()>& body) {
  int pipe[2];
  REQUIRE(::pipe2(pipe, O_CLOEXEC) == 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(pipe[1], STDERR_FILENO);
    ::_exit(body());
  }
  ::close(pipe[1]);
  Ended ended;
  char block[4096];
  for (ssize_t n; (n = ::read(pipe[0], block, sizeof block)) > 0;) ended.text.append(block, static_cast<size_t>(n));
  ::close(pipe[0]);
  ::waitpid(pid, &ended.status, 0);
  return ended;
}

/// The error's text goes to standard error, its code is the child's.
int Check(const StartNeeds& needs = {}) {
  try {
    CheckStartLimits("ds-test", needs);
    return 0;
  } catch (const Error& error) {
    ::dprintf(STDERR_FILENO, "%s", error.what());
    return static_cast<int>(error.code());
  }
}

int Limited(__rlimit_resource what, rlim_t most) {
  const rlimit limit{most, most};
  return ::setrlimit(what, &limit);
}

bool Has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("Limits that are too low for a start: code 3, the limit, what is needed and what to do") {
  Ended ended = InChild([] { return Check(); });
  CHECK(ended.code() == 0);
  ended = InChild([] { return Limited(RLIMIT_NOFILE, 12) ? 99 : Check(); });
  INFO(ended.text);
  CHECK(ended.code() == 3);
  CHECK(ended.text ==
        "ds-test cannot start here: it may open 12 files (hard limit, RLIMIT_NOFILE), and needs 64 at least: raise it "
        "(ulimit -Hn, limits.conf, LimitNOFILE of a service)");
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // their shadows are larger than the limit
  ended = InChild([] { return Limited(RLIMIT_AS, 200000ul << 10) ? 99 : Check(); });
  CHECK(ended.code() == 3);
  CHECK(Has(ended.text, "its address space is limited to 200000 KiB (RLIMIT_AS), and it needs 1048576 at least"));
  CHECK(Has(ended.text, "ulimit -v unlimited"));
#endif
  ended = InChild([] { return Limited(RLIMIT_NPROC, 1) || (::getuid() == 0 && ::setuid(65533) != 0) ? 99 : Check(); });
  CHECK(ended.code() == 3);
  CHECK(Has(ended.text, "more threads can be started"));
  CHECK(Has(ended.text, "it needs 32: the user may have 1 processes and threads (RLIMIT_NPROC, ulimit -u)"));
}

TEST_CASE("A soft limit of open files is raised to what a start needs") {
  const Ended ended = InChild([] {
    rlimit limit{16, 4096};
    if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) return 99;
    const int code = Check();
    ::getrlimit(RLIMIT_NOFILE, &limit);
    return limit.rlim_cur == 64 ? code : 98;
  });
  CHECK(ended.code() == 0);
}

TEST_CASE("EndWithin ends a process whose threads never do, with its code and last words") {
  Ended ended = InChild([] {
    EndWithin(0.05, 7, "error: it hangs");
    for (;;) ::pause();
    return 0;
  });
  CHECK(ended.code() == 7);
  CHECK(ended.text == "error: it hangs\n");
  ended = InChild([] {  // somebody blocked the signal
    sigset_t all;
    ::sigfillset(&all);
    ::sigprocmask(SIG_SETMASK, &all, nullptr);
    EndWithin(0.05, 8);
    for (;;) ::pause();
    return 0;
  });
  CHECK(ended.code() == 8);
  CHECK(ended.text.empty());
  ended = InChild([] {  // another's signal, before its time and after it was taken back
    EndWithin(600, 7);
    ::raise(SIGALRM);
    EndInItsTime();
    ::raise(SIGALRM);
    return 5;
  });
  CHECK(ended.code() == 5);
  ended = InChild([] {
    EndWithin(600, 7);
    EndInItsTime();
    itimerval timer{};
    ::getitimer(ITIMER_REAL, &timer);
    return timer.it_value.tv_sec == 0 && timer.it_value.tv_usec == 0 ? 3 : 4;
  });
  CHECK(ended.code() == 3);
}

}  // namespace ds
