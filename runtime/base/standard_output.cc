#include "runtime/base/standard_output.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "runtime/base/error.h"

namespace ds {
namespace {

bool ReaderIsGone() {
  pollfd output{STDOUT_FILENO, POLLOUT, 0};
  return ::poll(&output, 1, 0) > 0 && (output.revents & POLLERR) != 0;
}

}  // namespace

void FlushStandardOutput() {
  errno = 0;
  const bool flushed = std::fflush(stdout) == 0;
  const int why = errno;
  if ((flushed && !std::ferror(stdout)) || ReaderIsGone()) return;
  if (flushed || why == 0) throw RuntimeError("cannot write all of it to standard output");
  throw SystemError("cannot write to standard output", why);
}

}  // namespace ds
