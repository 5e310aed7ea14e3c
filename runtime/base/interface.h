// Network interfaces of this machine, and how a user names one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ds {

/// One address of an interface; an interface with several is listed several times.
struct NetworkInterface {
  std::string name;
  std::string address;  ///< IPv4 or IPv6, numeric, without a zone
  int prefix = 0;       ///< bits of the network: 24 of 10.0.0.1/24
  bool up = false, loopback = false;
  int64_t megabits = 0;  ///< a second, as the driver says; 0: unknown

  std::string Network() const { return address + "/" + std::to_string(prefix); }
  bool v4() const { return address.find(':') == std::string::npos; }
  /// fe80::...: of use on its own link only, and not without naming it.
  bool link_local_v6() const;
};

/// In the kernel's order. Throws SystemError.
std::vector<NetworkInterface> NetworkInterfaces();

/// What is wrong with launch.interface as a text; empty: nothing. Right are `auto`, a name, an address, a network
/// ADDRESS/BITS.
std::string InterfaceTextTrouble(const std::string& wanted);

/// Whether `wanted` (a name, an address or a network) means this interface: its name; an address in its network, so
/// that the address of one node finds the interface of every node on that network; a network that has its address.
bool InterfaceMatches(const std::string& wanted, const NetworkInterface& interface);

/// The other way round of NetworkInterface::Network: address and prefix. A prefix that is absent is the whole address.
void ParseNetwork(std::string_view text, NetworkInterface& interface);

/// The interface of this machine that has `address`; all of 127.0.0.0/8 is loopback's. Empty: none.
std::string InterfaceNameOf(const std::string& address);

}  // namespace ds
