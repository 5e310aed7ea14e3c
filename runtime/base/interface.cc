#include "runtime/base/interface.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>

#include "runtime/base/error.h"

namespace ds {
namespace {

/// An address as bytes; an IPv4 one has the first 4.
struct Address {
  std::array<uint8_t, 16> bytes{};
  int bits = 0;  ///< 32 or 128
};

std::optional<Address> ParseAddress(const std::string& text) {
  Address address;
  address.bits = text.find(':') == std::string::npos ? 32 : 128;
  const int family = address.bits == 32 ? AF_INET : AF_INET6;
  if (::inet_pton(family, text.c_str(), address.bytes.data()) != 1) return std::nullopt;
  return address;
}

bool SamePrefix(const Address& a, const Address& b, int prefix) {
  if (a.bits != b.bits) return false;
  for (int bit = 0; bit < prefix; ++bit) {
    const size_t byte = static_cast<size_t>(bit / 8);
    if (((a.bytes[byte] ^ b.bytes[byte]) >> (7 - bit % 8)) & 1) return false;
  }
  return true;
}

/// ADDRESS or ADDRESS/BITS. Without bits `prefix` is that of a single address.
bool ParsePrefix(std::string_view text, Address& address, int& prefix, bool& has_bits) {
  const size_t slash = text.find('/');
  has_bits = slash != std::string_view::npos;
  const std::optional<Address> parsed = ParseAddress(std::string(text.substr(0, slash)));
  if (!parsed) return false;
  address = *parsed;
  prefix = address.bits;
  if (!has_bits) return true;
  const std::string_view digits = text.substr(slash + 1);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), prefix);
  return error == std::errc() && end == digits.data() + digits.size() && prefix >= 0 && prefix <= address.bits;
}

int PrefixOf(const sockaddr* mask) {
  if (!mask) return 0;
  const bool v4 = mask->sa_family == AF_INET;
  const void* bytes = v4 ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in*>(mask)->sin_addr)
                         : &reinterpret_cast<const sockaddr_in6*>(mask)->sin6_addr;
  int bits = 0;
  for (size_t i = 0; i < (v4 ? 4u : 16u); ++i) bits += std::popcount(static_cast<const uint8_t*>(bytes)[i]);
  return bits;
}

int64_t MegabitsOf(const std::string& name) {
  std::ifstream file("/sys/class/net/" + name + "/speed");
  int64_t megabits = 0;
  return file >> megabits && megabits > 0 ? megabits : 0;
}

}  // namespace

bool NetworkInterface::link_local_v6() const {
  const std::optional<Address> parsed = v4() ? std::nullopt : ParseAddress(address);
  return parsed && parsed->bytes[0] == 0xfe && (parsed->bytes[1] & 0xc0) == 0x80;
}

std::vector<NetworkInterface> NetworkInterfaces() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) throw SystemError("cannot list the network interfaces", errno);
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owned(list, &::freeifaddrs);
  std::vector<NetworkInterface> found;
  for (const ifaddrs* i = list; i; i = i->ifa_next) {
    if (!i->ifa_addr || (i->ifa_addr->sa_family != AF_INET && i->ifa_addr->sa_family != AF_INET6)) continue;
    const bool v4 = i->ifa_addr->sa_family == AF_INET;
    const void* bytes = v4 ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in*>(i->ifa_addr)->sin_addr)
                           : &reinterpret_cast<const sockaddr_in6*>(i->ifa_addr)->sin6_addr;
    char text[INET6_ADDRSTRLEN] = "";
    ::inet_ntop(i->ifa_addr->sa_family, bytes, text, sizeof text);
    NetworkInterface interface;
    interface.name = i->ifa_name;
    interface.address = text;
    interface.prefix = PrefixOf(i->ifa_netmask);
    interface.up = (i->ifa_flags & IFF_UP) && (i->ifa_flags & IFF_RUNNING);
    interface.loopback = i->ifa_flags & IFF_LOOPBACK;
    interface.megabits = interface.loopback ? 0 : MegabitsOf(interface.name);
    found.push_back(std::move(interface));
  }
  return found;
}

std::string InterfaceTextTrouble(const std::string& wanted) {
  if (wanted.empty()) return "an empty name";
  Address address;
  int prefix = 0;
  bool has_bits = false;
  if (ParsePrefix(wanted, address, prefix, has_bits)) return "";
  if (wanted.find_first_of("/:") != std::string::npos) return "neither an address nor a network";
  if (wanted.find_first_not_of("0123456789.") == std::string::npos) return "not an IPv4 address";
  if (wanted.size() >= IFNAMSIZ) return "longer than an interface's name can be (15 bytes)";
  for (const char c : wanted) {
    if (static_cast<unsigned char>(c) <= 0x20 || c == 0x7f || c == '=' || c == ',' || c == '^') {
      return "not an interface's name: one name, without blanks, ',', '=' and '^'";
    }
  }
  return "";
}

bool InterfaceMatches(const std::string& wanted, const NetworkInterface& interface) {
  if (wanted == interface.name) return true;
  Address network, own;
  int prefix = 0;
  bool has_bits = false;
  if (!ParsePrefix(wanted, network, prefix, has_bits)) return false;
  const std::optional<Address> parsed = ParseAddress(interface.address);
  return parsed && SamePrefix(network, *parsed, has_bits ? prefix : interface.prefix);
}

void ParseNetwork(std::string_view text, NetworkInterface& interface) {
  const size_t slash = text.find('/');
  interface.address = text.substr(0, slash);
  Address address;
  bool has_bits = false;
  if (!ParsePrefix(text, address, interface.prefix, has_bits)) interface.prefix = 0;
}

std::string InterfaceNameOf(const std::string& address) {
  const bool loopback_v4 = address.starts_with("127.");
  const std::optional<Address> wanted = ParseAddress(address);
  if (!wanted) return "";
  for (const NetworkInterface& interface : NetworkInterfaces()) {
    const std::optional<Address> own = ParseAddress(interface.address);
    if (own && SamePrefix(*wanted, *own, wanted->bits)) return interface.name;
    if (loopback_v4 && interface.loopback) return interface.name;
  }
  return "";
}

}  // namespace ds
