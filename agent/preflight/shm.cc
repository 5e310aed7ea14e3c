// /dev/shm, through which NCCL moves data between ranks of a node that have no other way.
#include <sys/statvfs.h>

#include "agent/preflight/preflight.h"

namespace ds {

void LookAtShm(const deepshard::v1::Bootstrap&, deepshard::v1::NodeFacts& found, deepshard::v1::NodeFacts::Check&) {
  struct statvfs info {};
  if (::statvfs("/dev/shm", &info) != 0) return;
  found.set_shm_size(static_cast<int64_t>(info.f_blocks) * static_cast<int64_t>(info.f_frsize));
  found.set_shm_free(static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize));
}

}  // namespace ds
