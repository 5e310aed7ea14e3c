// Apart, because the kernel's statx, which glibc's lags behind, cannot stand beside glibc's.
#include "runtime/state/direct_alignment.h"

#include <fcntl.h>
#include <linux/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace ds {

int64_t DirectMemoryAlignment([[maybe_unused]] int fd) {
#ifdef STATX_DIOALIGN
  struct statx facts {};
  if (::syscall(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &facts) == 0 &&
      (facts.stx_mask & STATX_DIOALIGN) != 0)
    return facts.stx_dio_mem_align;
#endif
  return 0;
}

}  // namespace ds
