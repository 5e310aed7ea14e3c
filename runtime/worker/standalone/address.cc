#include "runtime/worker/standalone/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <sstream>
#include <thread>

#include "runtime/base/error.h"
#include "runtime/base/interface.h"
#include "runtime/base/random.h"

namespace ds {
namespace {

using std::chrono::milliseconds;

constexpr auto kDial = milliseconds(3000);
constexpr int kTokenBytes = 16;

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() {
    if (fd_ >= 0) ::close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int fd() const { return fd_; }

  /// Exactly that many bytes, within the time.
  std::optional<std::string> Read(size_t bytes, milliseconds timeout) const {
    std::string text;
    const auto until = std::chrono::steady_clock::now() + timeout;
    while (text.size() < bytes) {
      const auto left = std::chrono::duration_cast<milliseconds>(until - std::chrono::steady_clock::now()).count();
      pollfd waiting{fd_, POLLIN, 0};
      char block[256];
      if (left <= 0 || ::poll(&waiting, 1, static_cast<int>(left)) <= 0) return std::nullopt;
      const ssize_t n = ::recv(fd_, block, std::min(sizeof block, bytes - text.size()), 0);
      if (n <= 0) return std::nullopt;
      text.append(block, static_cast<size_t>(n));
    }
    return text;
  }
  void Write(const std::string& text) const {
    [[maybe_unused]] ssize_t n = ::send(fd_, text.data(), text.size(), MSG_NOSIGNAL);
  }
  std::string OwnAddress() const {
    sockaddr_in own{};
    socklen_t size = sizeof own;
    char text[INET_ADDRSTRLEN] = "";
    if (::getsockname(fd_, reinterpret_cast<sockaddr*>(&own), &size) == 0)
      ::inet_ntop(AF_INET, &own.sin_addr, text, sizeof text);
    return text;
  }

 private:
  int fd_;
};

/// Rank 0's door: answers who knows the question with the answer.
class Door {
 public:
  Door() : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in any{};
    any.sin_family = AF_INET;
    socklen_t size = sizeof any;
    if (::bind(listener_.fd(), reinterpret_cast<sockaddr*>(&any), sizeof any) != 0 ||
        ::listen(listener_.fd(), 128) != 0 ||
        ::getsockname(listener_.fd(), reinterpret_cast<sockaddr*>(&any), &size) != 0)
      throw SystemError("cannot listen for the other nodes", errno);
    port_ = ntohs(any.sin_port);
    thread_ = std::jthread([this](std::stop_token stop) { Answer(stop); });
  }
  int port() const { return port_; }
  const std::string& question() const { return question_; }
  const std::string& answer() const { return answer_; }

 private:
  void Answer(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      pollfd waiting{listener_.fd(), POLLIN, 0};
      if (::poll(&waiting, 1, 100) <= 0) continue;
      const Socket caller(::accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC));
      if (caller.fd() < 0) continue;
      const auto asked = caller.Read(question_.size(), milliseconds(1000));
      if (asked && *asked == question_) caller.Write(answer_);
    }
  }

  const std::string question_ = RandomHex(kTokenBytes), answer_ = RandomHex(kTokenBytes);
  Socket listener_;
  int port_ = 0;
  std::jthread thread_;
};

std::vector<std::string> OwnAddresses() {
  std::vector<std::string> addresses;
  for (const NetworkInterface& interface : NetworkInterfaces()) {
    if (interface.up && !interface.loopback && interface.v4()) addresses.push_back(interface.address);
  }
  return addresses;
}

/// This machine's end of a connection to ADDRESS:PORT whose other end gives the right answer; empty: there is none.
std::string Dial(const std::string& address, int port, const std::string& question, const std::string& answer) {
  const Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(port));
  if (::inet_pton(AF_INET, address.c_str(), &to.sin_addr) != 1) return "";
  if (::connect(socket.fd(), reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) {
    pollfd waiting{socket.fd(), POLLOUT, 0};
    int error = 0;
    socklen_t size = sizeof error;
    if (errno != EINPROGRESS || ::poll(&waiting, 1, static_cast<int>(kDial.count())) <= 0 ||
        ::getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error != 0)
      return "";
  }
  socket.Write(question);
  const auto heard = socket.Read(answer.size(), kDial);
  return heard && *heard == answer ? socket.OwnAddress() : "";
}

[[noreturn]] void Fail(const std::string& message) { throw Error(ExitCode::preflight, message); }

std::string ByInterface(const std::string& wanted) {
  for (const NetworkInterface& interface : NetworkInterfaces()) {
    if (interface.up && InterfaceMatches(wanted, interface)) return interface.address;
  }
  Fail("launch.interface " + wanted + ": no interface of this node is meant by it");
}

}  // namespace

std::string DataAddress(int rank, const std::vector<std::string>& machines, const std::string& wanted, Store& store,
                        std::chrono::milliseconds timeout) {
  const bool one = std::all_of(machines.begin(), machines.end(), [&](const auto& m) { return m == machines[0]; });
  if (wanted != "auto") return ByInterface(wanted);
  if (one) return "127.0.0.1";
  const std::string& own = machines[static_cast<size_t>(rank)];
  const auto key = [](size_t r) { return "reached/" + std::to_string(r); };
  if (rank == 0) {
    const Door door;
    std::string text = std::to_string(door.port()) + " " + door.question() + " " + door.answer();
    for (const std::string& address : OwnAddresses()) text += " " + address;
    store.Set("door", text);
    std::string reached;  // of ours, by the first rank elsewhere
    for (size_t r = 1; r < machines.size(); ++r) {
      if (machines[r] == own) continue;
      const std::string theirs = store.Get(key(r), timeout);
      if (reached.empty()) reached = theirs;
    }
    store.Set("first machine", reached);
    if (reached.empty()) Fail("no other node reached this one");
    return reached;
  }
  if (own == machines[0]) {
    const std::string reached = store.Get("first machine", timeout);
    if (reached.empty()) Fail("no other node reached rank 0's");
    return reached;
  }
  std::istringstream door(store.Get("door", timeout));
  int port = 0;
  std::string question, answer, tried;
  door >> port >> question >> answer;
  for (std::string address; door >> address; tried += " " + address) {
    const std::string here = Dial(address, port, question, answer);
    if (here.empty()) continue;
    store.Set(key(static_cast<size_t>(rank)), address);
    return here;
  }
  store.Set(key(static_cast<size_t>(rank)), "");
  Fail("this node reaches none of the addresses of rank 0's node:" + tried +
       "; name an interface with launch.interface");
}

}  // namespace ds
