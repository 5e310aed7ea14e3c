#include "launcher/nodes/data_network.h"

#include <algorithm>
#include <map>
#include <optional>

#include "proto/deepshard.pb.h"
#include "runtime/base/interface.h"
#include "runtime/base/text.h"

namespace ds {
namespace {

namespace pb = ::deepshard::v1;

constexpr size_t kMostNodesNamed = 8;

std::vector<NetworkInterface> InterfacesOf(const pb::NodeFacts& facts) {
  std::vector<NetworkInterface> interfaces;
  for (const pb::NodeFacts::Interface& fact : facts.interfaces()) {
    NetworkInterface interface;
    interface.name = fact.name();
    interface.up = fact.up();
    ParseNetwork(fact.address(), interface);
    interfaces.push_back(std::move(interface));
  }
  return interfaces;
}

/// "eth0 10.0.0.2/24, lo 127.0.0.1/8"
std::string Listed(const std::vector<NetworkInterface>& interfaces) {
  std::vector<std::string> parts;
  for (const NetworkInterface& interface : interfaces) {
    parts.push_back(interface.name + " " + interface.Network() + (interface.up ? "" : " (down)"));
  }
  return parts.empty() ? "none that it told of" : Join(parts, ", ");
}

bool IsV4(const std::string& address) { return address.find(':') == std::string::npos; }

/// Of each node its candidates; the first of a family that all have.
std::optional<std::vector<NodeAddress>> OneFamily(const std::vector<std::vector<NetworkInterface>>& candidates) {
  for (const bool v4 : {true, false}) {
    std::vector<NodeAddress> chosen;
    for (const std::vector<NetworkInterface>& node : candidates) {
      const auto it = std::find_if(node.begin(), node.end(), [&](const auto& i) { return i.v4() == v4; });
      if (it != node.end()) chosen.push_back({it->address, it->name});
    }
    if (chosen.size() == candidates.size()) return chosen;
  }
  return std::nullopt;
}

bool OfUse(const NetworkInterface& interface) { return interface.up && !interface.link_local_v6(); }

std::string NameOf(const std::vector<NetworkInterface>& interfaces, const std::string& address) {
  for (const NetworkInterface& interface : interfaces) {
    if (interface.address == address) return interface.name;
    if (address.starts_with("127.") && interface.address == "127.0.0.1") return interface.name;
  }
  return "";
}

DataNetwork OnOneMachine(const std::vector<HostSlots>& hosts) {
  DataNetwork network;
  for (const HostSlots& host : hosts) {
    // Sockets of one family only reach each other: ::1 beside others is 127.0.0.1 too.
    const bool own = host.host.starts_with("127.") || (host.host == "::1" && hosts.size() == 1);
    network.nodes.push_back({own ? host.host : "127.0.0.1", "lo"});
  }
  return network;
}

}  // namespace

std::string DataNetwork::Text(const std::vector<HostSlots>& hosts) const {
  std::vector<std::string> parts;
  if (nodes.size() <= kMostNodesNamed) {
    for (size_t i = 0; i < nodes.size(); ++i) {
      parts.push_back(nodes[i].address + (nodes[i].interface.empty() ? "" : " (" + nodes[i].interface + ")") + " on " +
                      hosts[i].host);
    }
    return Join(parts, ", ");
  }
  std::map<std::string, size_t> counts;
  for (const NodeAddress& node : nodes) ++counts[node.interface.empty() ? "an unnamed interface" : node.interface];
  for (const auto& [name, count] : counts) parts.push_back(name + " on " + std::to_string(count) + " nodes");
  return Join(parts, ", ");
}

DataNetwork ChooseDataNetwork(const std::vector<HostSlots>& hosts, const std::vector<pb::NodeFacts>& facts,
                              const std::string& wanted, bool on_this_machine) {
  if (wanted == "auto" && on_this_machine) return OnOneMachine(hosts);
  DataNetwork network;
  std::vector<std::vector<NetworkInterface>> candidates;
  bool v4 = false, v6 = false;
  for (size_t i = 0; i < hosts.size(); ++i) {
    const std::vector<NetworkInterface> interfaces = InterfacesOf(facts[i]);
    const std::string& dialled_from = facts[i].address();
    std::vector<NetworkInterface> of_node;
    if (wanted == "auto") {
      const std::string name = NameOf(interfaces, dialled_from);
      network.nodes.push_back({dialled_from, name});
      (IsV4(dialled_from) ? v4 : v6) = true;
      for (const NetworkInterface& interface : interfaces) {
        if (interface.name == name && OfUse(interface)) of_node.push_back(interface);
      }
      if (dialled_from.empty())
        network.troubles.push_back({hosts[i].host, "it is not known which address " + hosts[i].host +
                                                       " has: name its network with --interface"});
    } else {
      for (const NetworkInterface& interface : interfaces) {
        if (OfUse(interface) && InterfaceMatches(wanted, interface)) of_node.push_back(interface);
      }
      if (of_node.empty())
        network.troubles.push_back({hosts[i].host, hosts[i].host + " has no interface that is up and matches " +
                                                       "launch.interface " + wanted + "; it has " +
                                                       Listed(interfaces)});
    }
    candidates.push_back(std::move(of_node));
  }
  if (!network.troubles.empty() || (wanted == "auto" && !(v4 && v6))) return network;
  if (std::optional<std::vector<NodeAddress>> chosen = OneFamily(candidates)) {
    network.nodes = std::move(*chosen);
  } else {
    network.troubles.push_back({hosts[0].host,
                                "no family of addresses, IPv4 or IPv6, is there on every node's "
                                "interface for data: name another with --interface"});
  }
  return network;
}

}  // namespace ds
