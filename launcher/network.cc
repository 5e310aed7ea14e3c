#include "launcher/network.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace ds {

LaunchNetwork ChooseNetwork(bool on_this_machine) {
  LaunchNetwork network{"127.0.0.1", "127.0.0.1"};
  if (on_this_machine) return network;
  network.bind = "0.0.0.0";
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return network;
  for (ifaddrs* i = list; i; i = i->ifa_next) {
    if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET) continue;
    if ((i->ifa_flags & IFF_LOOPBACK) || !(i->ifa_flags & IFF_UP)) continue;
    char address[NI_MAXHOST];
    if (::getnameinfo(i->ifa_addr, sizeof(sockaddr_in), address, sizeof address, nullptr, 0, NI_NUMERICHOST) != 0) {
      continue;
    }
    network.reach = address;
    break;
  }
  ::freeifaddrs(list);
  return network;
}

}  // namespace ds
