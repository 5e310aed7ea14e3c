// Limits of this process, which its workers inherit.
#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>

#include "agent/preflight/preflight.h"

namespace ds {
namespace {

namespace pb = ::deepshard::v1;
namespace fs = std::filesystem;

uint64_t HardLimit(__rlimit_resource resource) {
  rlimit limit{};
  ::getrlimit(resource, &limit);
  return limit.rlim_max == RLIM_INFINITY ? std::numeric_limits<uint64_t>::max() : limit.rlim_max;
}

}  // namespace

void LookAtOpenFiles(const pb::Bootstrap&, pb::NodeFacts& found, pb::NodeFacts::Check&) {
  found.set_open_files(HardLimit(RLIMIT_NOFILE));
}

void LookAtLockedMemory(const pb::Bootstrap&, pb::NodeFacts& found, pb::NodeFacts::Check&) {
  found.set_locked_memory(HardLimit(RLIMIT_MEMLOCK));
  std::error_code error;
  for (fs::directory_iterator it("/sys/class/infiniband", error), end; !error && it != end; it.increment(error))
    found.add_rdma(it->path().filename().string());
  std::sort(found.mutable_rdma()->begin(), found.mutable_rdma()->end());
}

}  // namespace ds
