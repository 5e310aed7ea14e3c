#include "launcher/control/link_watch.h"

#include <dirent.h>
#include <linux/tcp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>

namespace ds {
namespace {

constexpr auto kLookAgain = std::chrono::seconds(1);

/// "ADDRESS PORT" of the other end of a TCP connection; empty: it is none.
std::string PeerOf(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return "";
  if (address.ss_family != AF_INET && address.ss_family != AF_INET6) return "";
  char host[NI_MAXHOST], port[NI_MAXSERV];
  if (::getnameinfo(reinterpret_cast<sockaddr*>(&address), size, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return "";
  std::string text = host;
  if (text.starts_with("::ffff:") && text.find('.') != std::string::npos) text = text.substr(7);
  return text + " " + port;
}

/// A descriptor of this process that is connected to `peer`; -1: none is.
int FindConnection(const std::string& peer) {
  DIR* folder = ::opendir("/proc/self/fd");
  if (!folder) return -1;
  int found = -1;
  while (dirent* entry = ::readdir(folder)) {
    char* end = nullptr;
    const long fd = std::strtol(entry->d_name, &end, 10);
    if (end == entry->d_name || *end != '\0' || PeerOf(static_cast<int>(fd)) != peer) continue;
    found = static_cast<int>(fd);
    break;
  }
  ::closedir(folder);
  return found;
}

/// gRPC's "ipv4:10.0.0.7:41234" or "ipv6:%5Bfd00::7%5D:41234" as PeerOf writes it; empty: another form.
std::string PeerText(const std::string& uri) {
  const size_t port = uri.rfind(':');
  if (port == std::string::npos || port < 5) return "";
  std::string host = uri.substr(5, port - 5);
  if (uri.starts_with("ipv6:")) {
    if (host.starts_with("%5B") && host.ends_with("%5D")) host = host.substr(3, host.size() - 6);
    if (host.starts_with("[") && host.ends_with("]")) host = host.substr(1, host.size() - 2);
    if (const size_t zone = host.find("%25"); zone != std::string::npos) host.erase(zone + 1, 2);
    if (host.starts_with("::ffff:") && host.find('.') != std::string::npos) host = host.substr(7);
  } else if (!uri.starts_with("ipv4:")) {
    return "";
  }
  return host + " " + uri.substr(port + 1);
}

}  // namespace

void LinkWatch::Watch(uint32_t node, const std::string& peer) {
  Link link;
  link.peer = PeerText(peer);
  if (link.peer.empty()) return Forget(node);
  links_[node] = link;
}

double LinkWatch::Unacknowledged(uint32_t node, Time now) {
  const auto found = links_.find(node);
  if (found == links_.end()) return 0;
  Link& link = found->second;
  // gRPC may close its descriptor at any time, and another file may take its number.
  if (link.fd < 0 || PeerOf(link.fd) != link.peer) {
    link.waits = false;
    if (now < link.look_again) return 0;
    link.look_again = now + kLookAgain;
    link.fd = FindConnection(link.peer);
    if (link.fd < 0) return 0;
  }
  tcp_info info{};
  socklen_t size = sizeof info;
  if (::getsockopt(link.fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 ||
      size < offsetof(tcp_info, tcpi_bytes_acked) + sizeof info.tcpi_bytes_acked || info.tcpi_unacked == 0) {
    link.waits = false;
    return 0;
  }
  if (!link.waits || info.tcpi_bytes_acked != link.acknowledged) {
    link.waits = true;
    link.waits_since = now;
    link.acknowledged = info.tcpi_bytes_acked;
  }
  return std::chrono::duration<double>(now - link.waits_since).count();
}

}  // namespace ds
