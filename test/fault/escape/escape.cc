// A program that tries to outlive its job: what containment tests run.
//
//   test-fault-escape [--exit] KIND...    KIND: setsid      a child in a session of its own
//                                               orphan      a grandchild whose parent is gone
//                                               deaf        a child that no signal ends but SIGKILL
//                                               daemon      all of that, with no descriptor open, in /
//                                               stopped     a daemon that is stopped
//                                               hop         a daemon that forks and exits every 2 ms: it has no number
//                                                           for long
// Prints "ready" when all have begun. Then it waits, or ends with --exit.
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>

namespace {

[[noreturn]] void Sleep() {
  for (;;) ::pause();
}

void IgnoreSignals() {
  for (int signal = 1; signal < NSIG; ++signal) ::signal(signal, SIG_IGN);
}

/// Goes on in a grandchild that nobody waits for.
bool BecomeOrphan() {
  if (::fork() != 0) return false;
  ::setsid();
  if (::fork() != 0) ::_exit(0);
  return true;
}

bool BecomeDaemon() {
  if (!BecomeOrphan()) return false;
  IgnoreSignals();
  if (::chdir("/") != 0) ::_exit(1);
  ::syscall(SYS_close_range, 0U, ~0U, 0U);
  return true;
}

void Begin(const std::string& kind) {
  if (kind == "setsid") {
    if (::fork() != 0) return;
    ::setsid();
    Sleep();
  } else if (kind == "orphan") {
    if (BecomeOrphan()) Sleep();
  } else if (kind == "deaf") {
    if (::fork() != 0) return;
    IgnoreSignals();
    Sleep();
  } else if (kind == "daemon") {
    if (BecomeDaemon()) Sleep();
  } else if (kind == "stopped") {
    if (!BecomeDaemon()) return;
    ::raise(SIGSTOP);
    Sleep();
  } else if (kind == "hop") {
    if (!BecomeDaemon()) return;
    for (;;) {
      if (::fork() != 0) ::_exit(0);
      ::usleep(2000);
    }
  } else {
    std::fprintf(stderr, "unknown kind %s\n", kind.c_str());
    ::_exit(2);
  }
}

}  // namespace

int main(int argc, char** argv) {
  bool leave = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--exit") == 0)
      leave = true;
    else
      Begin(argv[i]);
  }
  ::usleep(100000);  // orphans settle with their new parents
  std::puts("ready");
  std::fflush(stdout);
  if (!leave) Sleep();
  return 0;
}
