#include "agent/preflight/prober.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace ds {
namespace {

namespace pb = ::deepshard::v1;
using Clock = std::chrono::steady_clock;

struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;
};

bool Numeric(const std::string& host, uint32_t port, Address& address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return false;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  address.size = found->ai_addrlen;
  ::freeaddrinfo(found);
  return true;
}

std::string RandomGreeting() {
  std::random_device random;
  std::string text;
  for (int i = 0; i < 4; ++i) text += std::to_string(random()) + ".";
  return text;
}

/// Greets whoever connects, until `stop` can be read.
void Greet(int listen_fd, int stop, const std::string& greeting) {
  for (;;) {
    pollfd fds[2] = {{listen_fd, POLLIN, 0}, {stop, POLLIN, 0}};
    if (::poll(fds, 2, -1) < 0) continue;
    if (fds[1].revents) return;
    const int fd = ::accept4(listen_fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) continue;
    [[maybe_unused]] ssize_t n = ::send(fd, greeting.data(), greeting.size(), MSG_NOSIGNAL);
    ::shutdown(fd, SHUT_WR);
    ::close(fd);
  }
}

struct Call {
  int fd = -1;
  bool connected = false;
  std::string heard, error;
  Clock::time_point begin;
  double milliseconds = 0;

  void End(const std::string& why) {
    if (fd >= 0) ::close(fd);
    fd = -1;
    error = why;
    milliseconds = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
  }
};

void Begin(const pb::ProbePeer& peer, Call& call) {
  call.begin = Clock::now();
  Address address;
  if (!Numeric(peer.address(), peer.port(), address)) return call.End("not an address");
  call.fd = ::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (call.fd < 0) return call.End(std::strerror(errno));
  if (::connect(call.fd, reinterpret_cast<sockaddr*>(&address.storage), address.size) != 0 && errno != EINPROGRESS)
    call.End(std::strerror(errno));
}

void Advance(const pb::ProbePeer& peer, Call& call) {
  if (!call.connected) {
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(call.fd, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return call.End(std::strerror(error));
    call.connected = true;
    return;
  }
  char block[128];
  const ssize_t n = ::recv(call.fd, block, sizeof block, 0);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n < 0) return call.End(std::strerror(errno));
  call.heard.append(block, static_cast<size_t>(n));
  if (call.heard == peer.greeting()) return call.End("");
  if (n == 0 || call.heard.size() > peer.greeting().size()) call.End("somebody else answers there");
}

pb::ProbeResult DialAll(const pb::ProbeDial& dial, int stop) {
  std::vector<Call> calls(static_cast<size_t>(dial.peers_size()));
  for (size_t i = 0; i < calls.size(); ++i) Begin(dial.peers(static_cast<int>(i)), calls[i]);
  const Clock::time_point until =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(dial.seconds()));
  for (;;) {
    std::vector<pollfd> fds{{stop, POLLIN, 0}};
    std::vector<size_t> of;
    for (size_t i = 0; i < calls.size(); ++i) {
      if (calls[i].fd < 0) continue;
      fds.push_back({calls[i].fd, static_cast<short>(calls[i].connected ? POLLIN : POLLOUT), 0});
      of.push_back(i);
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
    if (of.empty() || left <= 0) break;
    if (::poll(fds.data(), fds.size(), static_cast<int>(left)) < 0) continue;
    if (fds[0].revents) break;
    for (size_t k = 0; k < of.size(); ++k)
      if (fds[k + 1].revents) Advance(dial.peers(static_cast<int>(of[k])), calls[of[k]]);
  }
  pb::ProbeResult result;
  for (size_t i = 0; i < calls.size(); ++i) {
    if (calls[i].fd >= 0)
      calls[i].End((calls[i].connected ? "connected, but no word within " : "no answer within ") +
                   std::to_string(static_cast<int>(dial.seconds())) + " s");
    pb::ProbeResult::Peer* peer = result.add_peers();
    peer->set_node(dial.peers(static_cast<int>(i)).node());
    peer->set_error(calls[i].error);
    peer->set_milliseconds(calls[i].milliseconds);
  }
  return result;
}

}  // namespace

Prober::~Prober() {
  const uint64_t one = 1;
  if (stop_fd_ >= 0) [[maybe_unused]]
    ssize_t n = ::write(stop_fd_, &one, sizeof one);
  if (listener_.joinable()) listener_.join();
  if (dialler_.joinable()) dialler_.join();
  if (listen_fd_ >= 0) ::close(listen_fd_);
  if (stop_fd_ >= 0) ::close(stop_fd_);
}

pb::ProbeListening Prober::Listen(const std::string& address) {
  pb::ProbeListening told;
  if (listener_.joinable()) {
    told.set_error("it listens already");
    return told;
  }
  Address own;
  if (!Numeric(address, 0, own)) {
    told.set_error("not an address");
    return told;
  }
  stop_fd_ = ::eventfd(0, EFD_CLOEXEC);
  listen_fd_ = ::socket(own.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  socklen_t size = sizeof own.storage;
  char port[NI_MAXSERV] = "0";
  if (stop_fd_ < 0 || listen_fd_ < 0 || ::bind(listen_fd_, reinterpret_cast<sockaddr*>(&own.storage), own.size) != 0 ||
      ::listen(listen_fd_, 64) != 0 ||
      ::getsockname(listen_fd_, reinterpret_cast<sockaddr*>(&own.storage), &size) != 0 ||
      ::getnameinfo(reinterpret_cast<sockaddr*>(&own.storage), size, nullptr, 0, port, sizeof port, NI_NUMERICSERV) !=
          0) {
    told.set_error(std::strerror(errno));
    return told;
  }
  told.set_port(static_cast<uint32_t>(std::stoul(port)));
  told.set_greeting(RandomGreeting());
  listener_ = std::thread(Greet, listen_fd_, stop_fd_, told.greeting());
  return told;
}

void Prober::Dial(const pb::ProbeDial& dial) {
  if (dialler_.joinable()) return;
  if (stop_fd_ < 0) stop_fd_ = ::eventfd(0, EFD_CLOEXEC);
  dialler_ = std::thread([this, dial] { on_result_(DialAll(dial, stop_fd_)); });
}

}  // namespace ds
