// Which addresses the launcher and the workers use.
#include "launcher/control/network.h"

#include <algorithm>

#include "launcher/nodes/data_network.h"
#include "proto/deepshard.pb.h"
#include "runtime/base/socket.h"
#include "test/catch.h"

using deepshard::v1::NodeFacts;
using ds::ChooseDataNetwork;
using ds::ChooseNetwork;
using ds::DataNetwork;
using ds::HostSlots;
using ds::LaunchNetwork;

namespace {

std::vector<HostSlots> Hosts(const std::vector<std::string>& names) {
  std::vector<HostSlots> hosts;
  for (const std::string& name : names) hosts.push_back({name, "", {0}});
  return hosts;
}

std::string AsWritten(const HostSlots& host) { return host.host; }

NodeFacts Facts(const std::string& address, const std::vector<std::pair<std::string, std::string>>& interfaces) {
  NodeFacts facts;
  facts.set_address(address);
  for (const auto& [name, network] : interfaces) {
    auto* interface = facts.add_interfaces();
    interface->set_name(name);
    interface->set_address(network);
    interface->set_up(true);
  }
  return facts;
}

}  // namespace

TEST_CASE("Agents on this machine dial loopback") {
  for (const auto& hosts : {Hosts({"127.0.0.1", "127.0.0.2", "localhost"}), Hosts({"::1"})}) {
    const LaunchNetwork network = ChooseNetwork(false, hosts, "auto", AsWritten);
    CHECK(network.bind == "127.0.0.1");
    CHECK(network.Reach() == "127.0.0.1");
  }
}

TEST_CASE("Other hosts dial the address that the kernel reaches them from; loopback is nothing to them") {
  const std::string own = ds::AddressTowards("198.51.100.7:1");
  if (own.empty()) return;  // a machine without a network
  const LaunchNetwork network =
      ChooseNetwork(false, Hosts({"localhost", "198.51.100.7", "198.51.100.8"}), "auto", AsWritten);
  CHECK(network.reach == std::vector<std::string>{own});
  CHECK(network.bind == own);
  CHECK(network.reason == "the way to 2 hosts");
  // The name that ssh's configuration has an address for is asked by it.
  const LaunchNetwork named = ChooseNetwork(false, Hosts({"no-such-host.invalid"}), "auto",
                                            [](const HostSlots&) { return std::string("198.51.100.7"); });
  CHECK(named.reach == std::vector<std::string>{own});
  // One that nobody knows: every address is a candidate, none is a loopback's.
  const LaunchNetwork unknown = ChooseNetwork(false, Hosts({"no-such-host.invalid"}), "auto", AsWritten);
  CHECK(std::find(unknown.reach.begin(), unknown.reach.end(), own) != unknown.reach.end());
  CHECK(std::none_of(unknown.reach.begin(), unknown.reach.end(), [](const auto& a) { return a.starts_with("127."); }));
  CHECK(unknown.reason.find("not known") != std::string::npos);
}

TEST_CASE("Data goes over the interface that reached the launcher, or the one that was named") {
  const auto hosts = Hosts({"w0", "w1"});
  const std::vector<NodeFacts> facts = {
      Facts("10.0.0.1",
            {{"lo", "127.0.0.1/8"}, {"eth0", "10.0.0.1/24"}, {"ib0", "10.9.0.1/16"}, {"eth0", "fd00::1/64"}}),
      Facts("10.0.0.2",
            {{"lo", "127.0.0.1/8"}, {"enp1", "10.0.0.2/24"}, {"ib0", "10.9.1.2/16"}, {"enp1", "fd00::2/64"}})};
  DataNetwork chosen = ChooseDataNetwork(hosts, facts, "auto", false);
  REQUIRE(chosen.troubles.empty());
  CHECK(chosen.Text(hosts) == "10.0.0.1 (eth0) on w0, 10.0.0.2 (enp1) on w1");
  for (const char* wanted : {"ib0", "10.9.0.0/16", "10.9.0.1", "10.9.200.200"}) {
    INFO(wanted);
    chosen = ChooseDataNetwork(hosts, facts, wanted, false);
    REQUIRE(chosen.troubles.empty());
    CHECK(chosen.Text(hosts) == "10.9.0.1 (ib0) on w0, 10.9.1.2 (ib0) on w1");
  }
  chosen = ChooseDataNetwork(hosts, facts, "fd00::/64", false);
  REQUIRE(chosen.troubles.empty());
  CHECK(chosen.nodes[1].address == "fd00::2");
  chosen = ChooseDataNetwork(hosts, facts, "eth0", false);
  REQUIRE(chosen.troubles.size() == 1);
  CHECK(chosen.troubles[0].host == "w1");
  CHECK(chosen.troubles[0].message.find("enp1 10.0.0.2/24") != std::string::npos);
}

TEST_CASE("An interface that is down is none") {
  std::vector<NodeFacts> facts = {Facts("10.0.0.1", {{"eth0", "10.0.0.1/24"}, {"ib0", "10.9.0.1/16"}})};
  facts[0].mutable_interfaces(1)->set_up(false);
  const DataNetwork chosen = ChooseDataNetwork(Hosts({"w0"}), facts, "ib0", false);
  REQUIRE(chosen.troubles.size() == 1);
  CHECK(chosen.troubles[0].message.find("ib0 10.9.0.1/16 (down)") != std::string::npos);
}

TEST_CASE("Nodes that reached the launcher over IPv4 and over IPv6 meet in one family") {
  const auto hosts = Hosts({"w0", "w1"});
  std::vector<NodeFacts> facts = {Facts("fd00::1", {{"eth0", "10.0.0.1/24"}, {"eth0", "fd00::1/64"}}),
                                  Facts("10.0.0.2", {{"eth0", "10.0.0.2/24"}, {"eth0", "fe80::2/64"}})};
  CHECK(ChooseDataNetwork(hosts, facts, "auto", false).Text(hosts) == "10.0.0.1 (eth0) on w0, 10.0.0.2 (eth0) on w1");
  facts[0] = Facts("fd00::1", {{"eth0", "fd00::1/64"}});
  CHECK(ChooseDataNetwork(hosts, facts, "auto", false).troubles.size() == 1);
}

TEST_CASE("On one machine data stays on loopback, on each host's own address") {
  const auto hosts = Hosts({"127.0.0.2", "localhost"});
  const DataNetwork chosen = ChooseDataNetwork(hosts, {Facts("127.0.0.1", {}), Facts("127.0.0.1", {})}, "auto", true);
  CHECK(chosen.nodes[0].address == "127.0.0.2");
  CHECK(chosen.nodes[1].address == "127.0.0.1");
}

TEST_CASE("Of many nodes the interfaces are counted") {
  DataNetwork network;
  std::vector<std::string> names;
  for (int i = 0; i < 20; ++i) {
    names.push_back("w" + std::to_string(i));
    network.nodes.push_back({"10.0.0." + std::to_string(i), i < 15 ? "eth0" : "enp1"});
  }
  CHECK(network.Text(Hosts(names)) == "enp1 on 5 nodes, eth0 on 15 nodes");
}
