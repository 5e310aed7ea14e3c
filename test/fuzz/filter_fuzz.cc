// Include and exclude filters: HOSTFILE %% FILTER. What a filter includes and what it excludes are all slots together.
#include "runtime/job/filter.h"

#include "runtime/base/error.h"
#include "test/fuzz/fuzz.h"

using namespace ds;

namespace {

size_t Slots(const std::vector<HostSlots>& hosts) {
  size_t count = 0;
  for (const HostSlots& host : hosts) count += host.slots.size();
  return count;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::vector<std::string> parts = fuzz::Parts(fuzz::View(data, size));
  std::string hostfile = "w0 slots=4\nw1 slots=2\n[::1] slots=1\n127.0.0.2 slots=3\n", filter = parts[0];
  if (parts.size() > 1) {
    hostfile = parts[0];
    filter = parts[1];
  }
  std::vector<HostSlots> hosts, included, excluded;
  try {
    hosts = ParseHostfile(hostfile, "hosts");
  } catch (const UsageError&) {
    return 0;  // another target's
  }
  const fuzz::Memory limit{1500, (1 << 20) + 200 * static_cast<int64_t>(Slots(hosts))};
  const bool includes = fuzz::Guarded(size, limit, {"--include"}, [&] {
    included = ApplyFilters(hosts, {filter, {}, {}, {}});
  });
  const bool excludes = fuzz::Guarded(size, limit, {"--exclude"}, [&] {
    excluded = ApplyFilters(hosts, {{}, filter, {}, {}});
  });
  if (includes) fuzz::Check(!included.empty(), "an include that includes nothing was taken", filter);
  fuzz::Check(includes || !excludes, "--exclude takes what --include does not", filter);
  if (includes && excludes)
    fuzz::Check(Slots(included) + Slots(excluded) == Slots(hosts), "include and exclude are not all slots", filter);
  if (includes && !excludes) fuzz::Check(included == hosts, "--exclude refuses what leaves something", filter);
  return 0;
}
