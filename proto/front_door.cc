#include "proto/front_door.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <list>
#include <map>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

namespace ds {
namespace {

using Clock = std::chrono::steady_clock;

Clock::duration Seconds(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

void SetOption(int fd, int level, int option, int value) { ::setsockopt(fd, level, option, &value, sizeof value); }

/// The peer's address without its port.
std::string SourceOf(const sockaddr_storage& address, socklen_t size) {
  char text[NI_MAXHOST] = "";
  ::getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return text;
}

std::runtime_error CannotListen(const std::string& host, uint16_t port, const std::string& why) {
  return std::runtime_error("cannot listen on " + host + ":" + std::to_string(port) + ": " + why);
}

int Listen(const std::string& host, uint16_t port, double silence_seconds) {
  std::string name = host;
  if (name.size() > 2 && name.front() == '[' && name.back() == ']') name = name.substr(1, name.size() - 2);
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  if (int error = ::getaddrinfo(name.c_str(), std::to_string(port).c_str(), &hints, &found); error != 0) {
    throw CannotListen(host, port, ::gai_strerror(error));
  }
  int error = 0;
  for (addrinfo* i = found; i; i = i->ai_next) {
    const int fd = ::socket(i->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
      error = errno;
      continue;
    }
    SetOption(fd, SOL_SOCKET, SO_REUSEADDR, 1);  // a restarted daemon finds its port again
    if (i->ai_family == AF_INET6) SetOption(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0);
    // What is accepted inherits these.
    SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    SetOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, std::max(1000, static_cast<int>(silence_seconds * 1000)));
    if (::bind(fd, i->ai_addr, i->ai_addrlen) == 0 && ::listen(fd, SOMAXCONN) == 0) {
      ::freeaddrinfo(found);
      return fd;
    }
    error = errno;
    ::close(fd);
  }
  ::freeaddrinfo(found);
  throw CannotListen(host, port, std::strerror(error));
}

/// A connection that is not let in yet.
struct Waiting {
  int fd;
  std::string source;
  Clock::time_point until;
  bool wanted = false;  ///< its ClientHello is good; it waits for others' handshakes
};

}  // namespace

struct FrontDoor::Impl {
  std::string server_name;
  FrontDoorLimits limits;
  int listener = -1, epoll = -1, wake = -1;
  uint16_t port = 0;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor;
  std::atomic<bool> stop{false};
  std::thread thread;

  // The thread's own.
  using Place = std::list<Waiting>::iterator;
  std::list<Waiting> waiting;  ///< in the order in which they came
  std::map<int, Place> by_fd;
  std::map<std::string, size_t> crowd;  ///< source -> how many of it wait
  size_t wanted = 0;                    ///< of those who wait
  std::deque<Clock::time_point> let_in;
  std::vector<uint8_t> bytes = std::vector<uint8_t>(kMaxClientHelloBytes);

  void Watch(int fd, uint32_t events) {
    epoll_event event{};
    event.events = events;
    event.data.fd = fd;
    ::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
  }

  void Run() {
    Watch(listener, EPOLLIN);
    Watch(wake, EPOLLIN);
    epoll_event events[64];
    while (!stop) {
      const int count = ::epoll_wait(epoll, events, 64, TimeToWait());
      for (int i = 0; i < count; ++i) {
        const int fd = events[i].data.fd;
        if (fd == listener) {
          Accept();
        } else if (auto it = by_fd.find(fd); it != by_fd.end()) {
          Look(it->second);
        }
      }
      const Clock::time_point now = Clock::now();
      while (!waiting.empty() && waiting.front().until <= now) Drop(waiting.begin());
      for (Place i = waiting.begin(); wanted > 0 && i != waiting.end() && MayEnter(now);) {
        const Place next = std::next(i);
        if (i->wanted) LetIn(i, now);
        i = next;
      }
    }
    while (!waiting.empty()) Drop(waiting.begin());
  }

  int TimeToWait() const {
    if (waiting.empty()) return -1;
    if (wanted > 0) return 20;  // a place may become free
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(waiting.front().until - Clock::now());
    return static_cast<int>(std::clamp<int64_t>(left.count() + 1, 0, 60'000));
  }

  void Accept() {
    for (int rounds = 0; rounds < 64; ++rounds) {  // the others have their turn
      sockaddr_storage address{};
      socklen_t size = sizeof address;
      const int fd = ::accept4(listener, reinterpret_cast<sockaddr*>(&address), &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (fd < 0) {
        // No descriptor is left: who waits gives one up. With nobody waiting they are held by others of this process.
        if ((errno == EMFILE || errno == ENFILE) && !DropOfCrowd()) {
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
        }
        return;
      }
      if (waiting.size() >= limits.waiting) DropOfCrowd();
      waiting.push_back({fd, SourceOf(address, size), Clock::now() + Seconds(limits.hello_seconds)});
      const Place place = std::prev(waiting.end());
      by_fd[fd] = place;
      ++crowd[place->source];
      Watch(fd, EPOLLIN | EPOLLRDHUP | EPOLLET);  // told once a time that bytes come: a slow one costs nothing between
      Look(place);
    }
  }

  /// The oldest of the address that most of the waiting come from. False: nobody waits.
  bool DropOfCrowd() {
    if (waiting.empty()) return false;
    const auto most =
        std::max_element(crowd.begin(), crowd.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    Drop(std::find_if(waiting.begin(), waiting.end(), [&](const Waiting& w) { return w.source == most->first; }));
    return true;
  }

  void Look(Place place) {
    if (place->wanted) return;
    const ssize_t n = ::recv(place->fd, bytes.data(), bytes.size(), MSG_PEEK);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) return Drop(place);
    switch (LookAtClientHello(bytes.data(), static_cast<size_t>(n), server_name)) {
      case ClientHello::incomplete:
        return;
      case ClientHello::foreign:
        return Drop(place);
      case ClientHello::wanted:
        place->wanted = true;
        ++wanted;
        if (const Clock::time_point now = Clock::now(); MayEnter(now)) LetIn(place, now);
        return;
    }
  }

  bool MayEnter(Clock::time_point now) {
    while (!let_in.empty() && let_in.front() + Seconds(limits.handshake_seconds) <= now) let_in.pop_front();
    return let_in.size() < limits.handshakes;
  }

  void LetIn(Place place, Clock::time_point now) {
    let_in.push_back(now);
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.fd = Take(place);
    ::epoll_ctl(epoll, EPOLL_CTL_DEL, connection.fd, nullptr);
    acceptor->HandleNewConnection(&connection);  // the bytes that were looked at are still in the socket
  }

  void Drop(Place place) { ::close(Take(place)); }

  /// Its descriptor, forgotten here.
  int Take(Place place) {
    const int fd = place->fd;
    if (place->wanted) --wanted;
    if (auto it = crowd.find(place->source); --it->second == 0) crowd.erase(it);
    by_fd.erase(fd);
    waiting.erase(place);
    return fd;
  }
};

FrontDoor::FrontDoor(const std::string& host, uint16_t port, std::string server_name, FrontDoorLimits limits)
    : impl_(std::make_unique<Impl>()) {
  impl_->server_name = std::move(server_name);
  impl_->limits = limits;
  impl_->listener = Listen(host, port, limits.silence_seconds);
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  ::getsockname(impl_->listener, reinterpret_cast<sockaddr*>(&own), &size);
  impl_->port = ntohs(own.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(own).sin6_port
                                                : reinterpret_cast<sockaddr_in&>(own).sin_port);
  impl_->epoll = ::epoll_create1(EPOLL_CLOEXEC);
  impl_->wake = ::eventfd(0, EFD_CLOEXEC);
  if (impl_->epoll < 0 || impl_->wake < 0) throw CannotListen(host, port, std::strerror(errno));
}

FrontDoor::~FrontDoor() {
  Close();
  for (int fd : {impl_->listener, impl_->epoll, impl_->wake}) {
    if (fd >= 0) ::close(fd);
  }
}

uint16_t FrontDoor::port() const { return impl_->port; }

void FrontDoor::Attach(grpc::ServerBuilder& builder, std::shared_ptr<grpc::ServerCredentials> credentials) {
  impl_->acceptor = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, std::move(credentials));
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                             std::max(1, static_cast<int>(impl_->limits.handshake_seconds * 1000)));
}

void FrontDoor::Open() {
  impl_->thread = std::thread([impl = impl_.get()] { impl->Run(); });
}

void FrontDoor::Close() {
  if (!impl_->thread.joinable()) return;
  impl_->stop = true;
  uint64_t one = 1;
  [[maybe_unused]] ssize_t n = ::write(impl_->wake, &one, sizeof one);
  impl_->thread.join();
  ::close(std::exchange(impl_->listener, -1));
}

}  // namespace ds
