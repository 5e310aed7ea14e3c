#include "runtime/base/interface.h"

#include <algorithm>

#include "test/catch.h"

using ds::InterfaceMatches;
using ds::InterfaceTextTrouble;
using ds::NetworkInterface;

namespace {

NetworkInterface Interface(const std::string& name, const std::string& network) {
  NetworkInterface interface;
  interface.name = name;
  ds::ParseNetwork(network, interface);
  return interface;
}

}  // namespace

TEST_CASE("An interface is named by its name, an address of its network, or a network") {
  const NetworkInterface eth0 = Interface("eth0", "10.1.2.3/16"), ib0 = Interface("ib0", "fd00:1::5/64");
  CHECK(InterfaceMatches("eth0", eth0));
  CHECK_FALSE(InterfaceMatches("eth", eth0));
  CHECK_FALSE(InterfaceMatches("eth01", eth0));
  CHECK(InterfaceMatches("10.1.2.3", eth0));
  CHECK(InterfaceMatches("10.1.200.9", eth0));  // another node's address on the same network
  CHECK_FALSE(InterfaceMatches("10.2.2.3", eth0));
  CHECK(InterfaceMatches("10.0.0.0/8", eth0));
  CHECK(InterfaceMatches("10.1.2.0/24", eth0));
  CHECK_FALSE(InterfaceMatches("10.1.3.0/24", eth0));
  CHECK(InterfaceMatches("0.0.0.0/0", eth0));
  CHECK_FALSE(InterfaceMatches("0.0.0.0/0", ib0));
  CHECK(InterfaceMatches("fd00:1::/32", ib0));
  CHECK_FALSE(InterfaceMatches("fd00:2::/32", ib0));
  CHECK(InterfaceMatches("fd00:1::9", ib0));
}

TEST_CASE("What cannot name an interface says why") {
  for (const char* good : {"auto", "eth0", "enp3s0f1", "10.0.0.1", "10.0.0.0/24", "fd00::1", "fd00::/8", "ib0.8001"}) {
    CHECK(InterfaceTextTrouble(good) == "");
  }
  for (const char* bad : {"", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/-1", "10.0.0.256", "fd00::/129", "fd00::g",
                          "eth0,eth1", "=eth0", "^lo", "a name", "averyveryverylongname", "10.0.0.0/8/8"}) {
    INFO(bad);
    CHECK(InterfaceTextTrouble(bad) != "");
  }
}

TEST_CASE("This machine has a loopback interface, found by each of its addresses") {
  const std::vector<NetworkInterface> all = ds::NetworkInterfaces();
  const auto loopback =
      std::find_if(all.begin(), all.end(), [](const NetworkInterface& i) { return i.address == "127.0.0.1"; });
  REQUIRE(loopback != all.end());
  CHECK(loopback->loopback);
  CHECK(loopback->prefix == 8);
  CHECK(ds::InterfaceNameOf("127.0.0.1") == loopback->name);
  CHECK(ds::InterfaceNameOf("127.4.5.6") == loopback->name);
  CHECK(ds::InterfaceNameOf("198.51.100.7") == "");
}

TEST_CASE("Link-local addresses are told apart") {
  CHECK(Interface("eth0", "fe80::1/64").link_local_v6());
  CHECK(Interface("eth0", "febf::1/64").link_local_v6());
  CHECK_FALSE(Interface("eth0", "fec0::1/64").link_local_v6());
  CHECK_FALSE(Interface("eth0", "169.254.0.1/16").link_local_v6());
}
