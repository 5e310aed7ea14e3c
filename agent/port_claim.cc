#include "agent/port_claim.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/error.h"

namespace ds {
namespace {

constexpr int kLowest = 20000, kHighest = 31999;

/// What the kernel gives to outgoing connections, inclusive.
std::pair<int, int> EphemeralRange() {
  std::ifstream file("/proc/sys/net/ipv4/ip_local_port_range");
  int low = 32768, high = 60999;
  file >> low >> high;
  return {low, high};
}

/// The ports to try; those outside the ephemeral range, or, where it covers all of them, all.
std::vector<uint16_t> Candidates() {
  const auto [low, high] = EphemeralRange();
  std::vector<uint16_t> outside, all;
  for (int port = kLowest; port <= kHighest; ++port) {
    all.push_back(static_cast<uint16_t>(port));
    if (port < low || port > high) outside.push_back(static_cast<uint16_t>(port));
  }
  return outside.empty() ? all : outside;
}

/// Bound to the port on every address, of IPv6 too where there is any; -1: it is taken.
int BindEverywhere(uint16_t port) {
  int fd = ::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd >= 0) {
    const int no = 0;
    ::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(port);
    if (::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) return fd;
    const int error = errno;
    ::close(fd);
    if (error == EADDRINUSE) return -1;
  }
  fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) throw SystemError("cannot open a socket", errno);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  if (::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) return fd;
  ::close(fd);
  return -1;
}

/// The name is of this network namespace, as ports are. -1: another agent has it.
int Claim(uint16_t port) {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) throw SystemError("cannot open a socket", errno);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = "deepshard-port-" + std::to_string(port);
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (::bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0) return fd;
  ::close(fd);
  return -1;
}

}  // namespace

PortClaim::PortClaim() {
  const std::vector<uint16_t> ports = Candidates();
  std::mt19937 random(std::random_device{}());
  size_t next = random() % ports.size();  // agents that start together begin at different places
  for (size_t tried = 0; tried < ports.size(); ++tried, next = (next + 1) % ports.size()) {
    if (Take(ports[next])) return;
  }
  throw RuntimeError("no free TCP port from " + std::to_string(kLowest) + " to " + std::to_string(kHighest));
}

PortClaim::~PortClaim() {
  LetListen();
  if (claim_ >= 0) ::close(claim_);
}

bool PortClaim::Take(uint16_t port) {
  claim_ = Claim(port);
  if (claim_ < 0) return false;
  held_ = BindEverywhere(port);
  if (held_ >= 0) {
    port_ = port;
    return true;
  }
  ::close(std::exchange(claim_, -1));
  return false;
}

void PortClaim::LetListen() {
  if (held_ >= 0) ::close(std::exchange(held_, -1));
}

}  // namespace ds
