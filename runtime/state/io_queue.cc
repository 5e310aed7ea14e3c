#include "runtime/state/io_queue.h"

#include <cerrno>
#include <system_error>

#include "runtime/base/error.h"

namespace ds {

const char* NameOf(IoBackend backend) {
  switch (backend) {
    case IoBackend::any:
      return "any";
    case IoBackend::io_uring:
      return "io_uring";
    case IoBackend::threads:
      return "threads";
  }
  return "?";
}

std::unique_ptr<IoQueue> MakeIoQueue(IoBackend backend, const std::vector<int>& files, int depth) {
  if (backend != IoBackend::threads) {
    if (std::unique_ptr<IoQueue> ring = detail::MakeIoRing(files, depth)) return ring;
    if (backend == IoBackend::io_uring) {
      const int error = errno;
      const std::string why = WhyNoIoUring();
      throw RuntimeError("io_uring does not work: " + (why.empty() ? std::generic_category().message(error) : why));
    }
  }
  return detail::MakeIoThreads(files, depth);
}

std::string WhyNoIoUring() {
  if (!detail::BuiltWithIoUring()) return "this program was built without liburing";
  if (detail::MakeIoRing({}, 1)) return "";
  switch (errno) {
    case EPERM:
    case EACCES:
      return "not permitted: by seccomp, as in many containers, or by the sysctl kernel.io_uring_disabled";
    case ENOSYS:
      return "this kernel has none, or a seccomp filter hides it";
    default:
      return std::generic_category().message(errno);
  }
}

}  // namespace ds
