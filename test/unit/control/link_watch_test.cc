// Whether a machine is there is read off the connection to it: its kernel acknowledges while its processes are stopped.
// The path is cut in network namespaces, where this user may make any.
#include "launcher/control/link_watch.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "runtime/base/error.h"
#include "test/catch.h"

namespace ds {
namespace {

using Clock = std::chrono::steady_clock;

/// A TCP connection between two namespaces (or within this one) whose far end nobody reads.
struct Connection {
  int near = -1, far = -1, listener = -1;
  std::string peer;
  ~Connection() {
    for (int fd : {near, far, listener})
      if (fd >= 0) ::close(fd);
  }
};

sockaddr_in Address(const char* host, uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  ::inet_pton(AF_INET, host, &address.sin_addr);
  return address;
}

/// The near end listens on `near_host`, as a launcher does; `enter_far` runs before the far end's socket is made.
template <class Enter, class Back>
void Connect(Connection& c, const char* near_host, Enter enter_far, Back back) {
  c.listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = Address(near_host, 0);
  socklen_t size = sizeof address;
  REQUIRE(::bind(c.listener, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  REQUIRE(::listen(c.listener, 1) == 0);
  ::getsockname(c.listener, reinterpret_cast<sockaddr*>(&address), &size);
  enter_far();
  c.far = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  back();
  REQUIRE(::connect(c.far, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  sockaddr_in peer{};
  size = sizeof peer;
  c.near = ::accept4(c.listener, reinterpret_cast<sockaddr*>(&peer), &size, SOCK_CLOEXEC);
  REQUIRE(c.near >= 0);
  char text[64];
  ::inet_ntop(AF_INET, &peer.sin_addr, text, sizeof text);
  c.peer = std::string("ipv4:") + text + ":" + std::to_string(ntohs(peer.sin_port));
}

/// Sends a beat every 200 ms for `seconds` and looks; the longest time without acknowledgement.
double Beat(LinkWatch& watch, const Connection& c, double seconds) {
  double longest = 0;
  for (auto begin = Clock::now(); Clock::now() - begin < std::chrono::duration<double>(seconds);) {
    [[maybe_unused]] ssize_t n = ::send(c.near, "beat", 4, MSG_DONTWAIT | MSG_NOSIGNAL);
    for (int i = 0; i < 4; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      longest = std::max(longest, watch.Unacknowledged(7, Clock::now()));
    }
  }
  return longest;
}

bool Run(const std::string& command) { return std::system((command + " 2> /dev/null").c_str()) == 0; }

/// Two namespaces, `near` (this process's while it lives) and `far`, joined by a pair of interfaces.
class Namespaces {
 public:
  Namespaces() {
    const std::string id = std::to_string(::getpid());
    near_name_ = "dsn" + id;
    far_name_ = "dsf" + id;
    const std::string near = "ip -n " + near_name_, far = "ip -n " + far_name_;
    own_ = ::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    made_ = ::geteuid() == 0 && Run("ip netns add " + near_name_) && Run("ip netns add " + far_name_) &&
            Run(near + " link add veth0 type veth peer name veth1 netns " + far_name_) &&
            Run(near + " addr add 10.99.0.1/24 dev veth0") && Run(far + " addr add 10.99.0.2/24 dev veth1") &&
            Run(near + " link set veth0 up") && Run(far + " link set veth1 up");
    if (made_) EnterNear();
  }
  ~Namespaces() {
    Enter(own_);
    ::close(own_);
    Run("ip netns del " + near_name_);
    Run("ip netns del " + far_name_);
  }
  bool made() const { return made_; }
  void EnterNear() const { EnterNamed(near_name_); }
  void EnterFar() const { EnterNamed(far_name_); }
  bool InNear(const std::string& command) const { return Run("ip -n " + near_name_ + " " + command); }
  bool InFar(const std::string& command) const { return Run("ip -n " + far_name_ + " " + command); }

 private:
  static void Enter(int fd) { REQUIRE(::setns(fd, CLONE_NEWNET) == 0); }
  static void EnterNamed(const std::string& name) {
    const int fd = ::open(("/run/netns/" + name).c_str(), O_RDONLY | O_CLOEXEC);
    REQUIRE(fd >= 0);
    Enter(fd);
    ::close(fd);
  }
  std::string near_name_, far_name_;
  int own_ = -1;
  bool made_ = false;
};

}  // namespace

TEST_CASE("A peer that reads nothing acknowledges all the same; connections that are gone wait for nothing") {
  Connection c;
  Connect(
      c, "127.0.0.1", [] {}, [] {});
  LinkWatch watch;
  watch.Watch(7, c.peer);
  CHECK(Beat(watch, c, 1.5) < 0.5);
  // Its window fills: what is not on its way is not unacknowledged.
  std::string block(1 << 16, 'x');
  while (::send(c.near, block.data(), block.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
  }
  CHECK(Beat(watch, c, 2) < 1);
  watch.Watch(8, "unix:/somewhere");
  CHECK(watch.Unacknowledged(8, Clock::now()) == 0);
  watch.Watch(9, "ipv6:%5B::1%5D:1");
  CHECK(watch.Unacknowledged(9, Clock::now()) == 0);
  ::close(c.near);
  c.near = -1;
  CHECK(watch.Unacknowledged(7, Clock::now()) == 0);
}

TEST_CASE("A cut link, and a black hole in either direction, show within 3 s; a second's cut does not") {
  Namespaces namespaces;
  if (!namespaces.made()) {
    WARN("no network namespaces here (root and iproute2 are needed): skipped");
    CHECK(!std::getenv("CI"));
    return;
  }
  Connection c;
  Connect(
      c, "10.99.0.1", [&] { namespaces.EnterFar(); }, [&] { namespaces.EnterNear(); });
  LinkWatch watch;
  watch.Watch(7, c.peer);
  CHECK(Beat(watch, c, 0.6) < 0.5);
  SECTION("down for a second") {
    REQUIRE(namespaces.InFar("link set veth1 down"));
    const double during = Beat(watch, c, 1);
    REQUIRE(namespaces.InFar("link set veth1 up"));
    CHECK(during > 0);
    CHECK(Beat(watch, c, 3) < 3);
    CHECK(Beat(watch, c, 1) < 0.5);
  }
  SECTION("down") {
    REQUIRE(namespaces.InFar("link set veth1 down"));
    CHECK(Beat(watch, c, 5) > 3);
  }
  SECTION("what we send is lost") {
    REQUIRE(namespaces.InNear("neigh replace 10.99.0.2 lladdr 02:00:00:00:00:99 dev veth0 nud permanent"));
    CHECK(Beat(watch, c, 5) > 3);
  }
  SECTION("what they send is lost") {
    REQUIRE(namespaces.InFar("neigh replace 10.99.0.1 lladdr 02:00:00:00:00:99 dev veth1 nud permanent"));
    CHECK(Beat(watch, c, 5) > 3);
  }
}

}  // namespace ds
