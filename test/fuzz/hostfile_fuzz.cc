// The hostfile. What is read prints as a hostfile that reads back to the same.
#include "runtime/job/hostfile.h"

#include "test/fuzz/fuzz.h"

using namespace ds;

namespace {

std::string Print(const std::vector<HostSlots>& hosts) {
  std::string text;
  for (const HostSlots& host : hosts)
    text += (host.user.empty() ? "" : host.user + "@") + Bracketed(host.host) +
            " slots=" + std::to_string(host.slots.size()) + "\n";
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(fuzz::View(data, size));
  std::vector<HostSlots> hosts;
  const fuzz::Memory limit{1500, 24 << 20};
  if (!fuzz::Guarded(size, limit, {"hosts:"}, [&] { hosts = ParseHostfile(text, "hosts"); })) return 0;
  fuzz::Check(!hosts.empty(), "a hostfile without hosts was read");
  fuzz::Check(ParseHostfile(Print(hosts), "printed") == hosts, "the hosts print as others", Print(hosts));
  for (const HostSlots& host : hosts) {
    IsLoopback(host.host);
    fuzz::Check(CanonicalHost(CanonicalHost(host.host)) == CanonicalHost(host.host), "no canonical form", host.host);
  }
  return 0;
}
