#include "launcher/bootstrap/choose.h"

#include <algorithm>
#include <cstdlib>

#include "launcher/bootstrap/this_machine.h"

namespace ds {
namespace {

/// The SLURM allocation that this process is in; empty: none.
std::string Allocation(const EnvironmentLookup& variable) {
  const char *id = variable("SLURM_JOB_ID"), *nodes = variable("SLURM_JOB_NODELIST");
  return id && nodes && *nodes ? id : "";
}

}  // namespace

BootstrapChoice ChooseBootstrap(const std::string& asked, const std::vector<HostSlots>& hosts,
                                const EnvironmentLookup& variable) {
  if (asked != "auto") return {asked, "as asked"};
  const auto loopback = [](const HostSlots& host) { return IsLoopback(host.host); };
  const bool all_loopback = std::all_of(hosts.begin(), hosts.end(), loopback);
  if (const std::string id = Allocation(variable); !id.empty() && !all_loopback) {
    return {"slurm", "inside SLURM's allocation " + id};
  }
  const auto elsewhere =
      std::find_if(hosts.begin(), hosts.end(), [](const HostSlots& host) { return !IsThisMachine(host.host); });
  if (elsewhere == hosts.end()) {
    return {"local", hosts.size() == 1 ? "the only host is this machine" : "every host is this machine"};
  }
  return {"ssh", elsewhere->host + " is not this machine"};
}

BootstrapChoice ChooseBootstrap(const std::string& asked, const std::vector<HostSlots>& hosts) {
  return ChooseBootstrap(asked, hosts, [](const char* name) { return std::getenv(name); });
}

}  // namespace ds
