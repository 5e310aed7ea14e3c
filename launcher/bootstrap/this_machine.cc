#include "launcher/bootstrap/this_machine.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <set>

#include "runtime/job/hostfile.h"

namespace ds {
namespace {

std::string NumericAddress(const sockaddr* address) {
  const socklen_t size = address->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  char text[NI_MAXHOST];
  return ::getnameinfo(address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0 ? text : "";
}

std::set<std::string> OwnAddresses() {
  std::set<std::string> addresses;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return addresses;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owned(list, &::freeifaddrs);
  for (const ifaddrs* i = list; i; i = i->ifa_next) {
    if (!i->ifa_addr || (i->ifa_addr->sa_family != AF_INET && i->ifa_addr->sa_family != AF_INET6)) continue;
    addresses.insert(NumericAddress(i->ifa_addr));
  }
  return addresses;
}

}  // namespace

bool IsThisMachine(const std::string& host) {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  if (IsLoopback(host) || host == name) return true;
  const std::set<std::string> own = OwnAddresses();
  addrinfo hints{}, *list = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (::getaddrinfo(host.c_str(), nullptr, &hints, &list) != 0) return false;
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> found(list, &::freeaddrinfo);
  for (const addrinfo* i = found.get(); i; i = i->ai_next) {
    const std::string address = NumericAddress(i->ai_addr);
    if (!IsLoopback(address) && !own.contains(address)) return false;
  }
  return found != nullptr;
}

}  // namespace ds
