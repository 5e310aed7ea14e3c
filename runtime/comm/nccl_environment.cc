#include "runtime/comm/nccl_environment.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "runtime/base/error.h"

namespace ds {
namespace {

/// An IPv4 or IPv6 address as IPv6; an IPv4 one is mapped.
struct Address {
  in6_addr bytes{};
  bool operator==(const Address& other) const { return std::memcmp(&bytes, &other.bytes, sizeof bytes) == 0; }
  bool v4() const { return IN6_IS_ADDR_V4MAPPED(&bytes); }
  bool loopback_v4() const { return v4() && bytes.s6_addr[12] == 127; }
};

Address Mapped(const in_addr& v4) {
  Address address;
  address.bytes.s6_addr[10] = address.bytes.s6_addr[11] = 0xff;
  std::memcpy(address.bytes.s6_addr + 12, &v4, sizeof v4);
  return address;
}

Address Parse(const std::string& text) {
  Address address;
  in_addr v4{};
  if (inet_pton(AF_INET, text.c_str(), &v4) == 1) return Mapped(v4);
  if (inet_pton(AF_INET6, text.c_str(), &address.bytes) == 1) return address;
  throw RuntimeError("interface address '" + text + "' is not an IP address");
}

bool Has(const ifaddrs& interface, const Address& address) {
  if (!interface.ifa_addr) return false;
  if (interface.ifa_addr->sa_family == AF_INET) {
    if (address.loopback_v4() && (interface.ifa_flags & IFF_LOOPBACK)) return true;
    return Mapped(reinterpret_cast<const sockaddr_in*>(interface.ifa_addr)->sin_addr) == address;
  }
  if (interface.ifa_addr->sa_family == AF_INET6)
    return Address{reinterpret_cast<const sockaddr_in6*>(interface.ifa_addr)->sin6_addr} == address;
  return false;
}

}  // namespace

std::string InterfaceOf(const std::string& address) {
  const Address wanted = Parse(address);
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) throw SystemError("cannot list the network interfaces", errno);
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owned(first, &freeifaddrs);
  for (const ifaddrs* interface = first; interface; interface = interface->ifa_next) {
    if (Has(*interface, wanted)) return interface->ifa_name;
  }
  throw RuntimeError("no network interface of this machine has the address " + address);
}

std::vector<EnvironmentVariable> NcclEnvironment(const std::string& interface_address, bool pinned) {
  std::vector<EnvironmentVariable> variables = {
      {"NCCL_SOCKET_IFNAME", "=" + InterfaceOf(interface_address)},  // =: this name, and none that begins with it
      {"NCCL_SOCKET_FAMILY", Parse(interface_address).v4() ? "AF_INET" : "AF_INET6"},
      {"NCCL_NVLS_ENABLE", "0"},
  };
  if (pinned) {
    variables.push_back({"NCCL_ALGO", "Ring"});
    variables.push_back({"NCCL_PROTO", "Simple"});
  }
  return variables;
}

std::string SetEnvironment(const std::vector<EnvironmentVariable>& variables) {
  std::string text;
  for (const auto& [name, value] : variables) {
    const char* present = std::getenv(name.c_str());
    text +=
        (text.empty() ? "" : ", ") + name + "=" + (present ? present : value) + (present ? " (set by the user)" : "");
    if (setenv(name.c_str(), value.c_str(), 0) != 0) throw SystemError("cannot set " + name, errno);
  }
  return text;
}

}  // namespace ds
