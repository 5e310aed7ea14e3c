#include "launcher/control/network.h"

#include <algorithm>
#include <chrono>
#include <map>

#include "runtime/base/error.h"
#include "runtime/base/socket.h"
#include "runtime/base/text.h"

namespace ds {
namespace {

constexpr size_t kMostLookedUp = 64, kMostAddresses = 8;
constexpr auto kLookUpTime = std::chrono::seconds(3);

bool OfUse(const NetworkInterface& interface) {
  return interface.up && !interface.loopback && !interface.link_local_v6();
}

/// Where to listen so that every address of `reach` leads here.
std::string BindTo(const std::vector<std::string>& reach) {
  if (reach.size() == 1) return reach[0];
  const bool v6 = std::any_of(reach.begin(), reach.end(), [](const std::string& a) { return a.front() == '['; });
  return v6 ? "[::]" : "0.0.0.0";
}

void Add(std::vector<std::string>& reach, const std::string& address) {
  const std::string text = Bracketed(address);
  if (reach.size() < kMostAddresses && std::find(reach.begin(), reach.end(), text) == reach.end())
    reach.push_back(text);
}

std::string Count(size_t count) { return std::to_string(count) + (count == 1 ? " host" : " hosts"); }

}  // namespace

std::string LaunchNetwork::Reach() const { return Join(reach, ","); }

LaunchNetwork ChooseNetwork(bool on_this_machine, const std::vector<HostSlots>& hosts, const std::string& wanted,
                            const NetworkNameOf& name_of) {
  const auto loopback = [](const HostSlots& host) { return IsLoopback(host.host); };
  if (on_this_machine || std::all_of(hosts.begin(), hosts.end(), loopback)) {
    return {"127.0.0.1", {"127.0.0.1"}, "all agents are on this machine"};
  }
  LaunchNetwork network;
  const std::vector<NetworkInterface> interfaces = NetworkInterfaces();
  if (wanted != "auto") {
    for (const NetworkInterface& interface : interfaces) {
      if (OfUse(interface) && InterfaceMatches(wanted, interface)) Add(network.reach, interface.address);
    }
    network.reason = "launch.interface is " + wanted;
  }
  if (network.reach.empty()) {
    if (wanted != "auto") network.reason += ", which this machine does not have; ";
    std::map<std::string, size_t> ways;  // our address -> how many hosts it reaches
    size_t looked_up = 0, unknown = 0;
    const auto until = std::chrono::steady_clock::now() + kLookUpTime;
    for (const HostSlots& host : hosts) {
      if (loopback(host)) continue;
      if (looked_up++ == kMostLookedUp || std::chrono::steady_clock::now() > until) break;
      const std::string own = AddressTowards(Bracketed(name_of(host)) + ":1");
      own.empty() || IsLoopback(own) ? ++unknown : ++ways[own];
    }
    std::vector<std::pair<size_t, std::string>> best;
    for (const auto& [address, count] : ways) best.emplace_back(count, address);
    std::stable_sort(best.begin(), best.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    std::vector<std::string> parts;
    for (const auto& [count, address] : best) {
      Add(network.reach, address);
      parts.push_back(parts.empty() && best.size() == 1 ? "the way to " + Count(count)
                                                        : address + ": the way to " + Count(count));
    }
    if (unknown > 0) {
      for (const NetworkInterface& interface : interfaces) {
        if (OfUse(interface)) Add(network.reach, interface.address);
      }
      parts.push_back("the way to " + Count(unknown) + " is not known: every address is tried");
    }
    network.reason += Join(parts, "; ");
  }
  if (network.reach.empty()) {
    throw RuntimeError("no network interface of this machine is up but loopback: agents on other hosts could not dial");
  }
  network.bind = BindTo(network.reach);
  return network;
}

}  // namespace ds
