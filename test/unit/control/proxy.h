// A network between an agent and its launcher that a test cuts and heals: a TCP proxy on loopback.
#pragma once

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace ds {

class Proxy {
 public:
  /// Passes connections on to 127.0.0.1:PORT of `target` (HOST:PORT).
  explicit Proxy(const std::string& target)
      : target_port_(static_cast<uint16_t>(std::stoi(target.substr(target.rfind(':') + 1)))) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in own = Loopback(0);
    socklen_t size = sizeof own;
    if (::bind(listener_, reinterpret_cast<sockaddr*>(&own), size) != 0 || ::listen(listener_, 16) != 0 ||
        ::getsockname(listener_, reinterpret_cast<sockaddr*>(&own), &size) != 0) {
      throw std::runtime_error("the test's proxy cannot listen");
    }
    address_ = "127.0.0.1:" + std::to_string(ntohs(own.sin_port));
    thread_ = std::thread([this] { Run(); });
  }
  ~Proxy() {
    stop_ = true;
    thread_.join();
    for (const Pair& pair : pairs_) {
      ::close(pair.ends[0]);
      ::close(pair.ends[1]);
    }
    ::close(listener_);
  }

  const std::string& address() const { return address_; }

  /// Nothing passes, and nothing is closed: bytes wait, as they do where a link is down.
  void Cut() { cut_ = true; }
  void Heal() { cut_ = false; }

 private:
  struct Pair {
    int ends[2];
  };

  static sockaddr_in Loopback(uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }

  void Run() {
    while (!stop_) {
      std::vector<pollfd> fds{{listener_, POLLIN, 0}};
      if (!cut_) {
        for (const Pair& pair : pairs_) {
          fds.push_back({pair.ends[0], POLLIN, 0});
          fds.push_back({pair.ends[1], POLLIN, 0});
        }
      }
      ::poll(fds.data(), fds.size(), 5);
      if (cut_) continue;
      if (fds[0].revents) Accept();
      std::vector<size_t> ended;
      for (size_t i = 1; i < fds.size(); ++i) {
        const size_t pair = (i - 1) / 2;
        if (fds[i].revents && !Pass(pairs_[pair].ends[(i - 1) % 2], pairs_[pair].ends[i % 2])) ended.push_back(pair);
      }
      for (size_t i = ended.size(); i-- > 0;) {
        if (i + 1 < ended.size() && ended[i] == ended[i + 1]) continue;
        ::close(pairs_[ended[i]].ends[0]);
        ::close(pairs_[ended[i]].ends[1]);
        pairs_.erase(pairs_.begin() + static_cast<long>(ended[i]));
      }
    }
  }

  void Accept() {
    const int in = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    const int out = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in target = Loopback(target_port_);
    if (in >= 0 && ::connect(out, reinterpret_cast<sockaddr*>(&target), sizeof target) == 0) {
      pairs_.push_back({{in, out}});
    } else {
      ::close(in);
      ::close(out);
    }
  }

  static bool Pass(int from, int to) {
    char block[1 << 14];
    const ssize_t n = ::recv(from, block, sizeof block, 0);
    for (ssize_t done = 0; done < n;) {
      const ssize_t sent = ::send(to, block + done, static_cast<size_t>(n - done), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      done += sent;
    }
    return n > 0;
  }

  uint16_t target_port_;
  int listener_ = -1;
  std::string address_;
  std::atomic<bool> stop_{false}, cut_{false};
  std::vector<Pair> pairs_;  // the thread's
  std::thread thread_;
};

}  // namespace ds
