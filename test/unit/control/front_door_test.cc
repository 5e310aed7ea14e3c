// Strangers at the control port: they take no place from agents, however many, silent or slow they are.
#include "proto/front_door.h"

#include <arpa/inet.h>
#include <openssl/bio.h>
#include <openssl/ssl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "test/catch.h"
#include "test/unit/control/server.h"

namespace ds {
namespace {

using Clock = std::chrono::steady_clock;

/// A plain connection to the server.
class Stranger {
 public:
  explicit Stranger(const std::string& address) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) throw std::runtime_error("connect");
  }
  Stranger(Stranger&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~Stranger() {
    if (fd_ >= 0) ::close(fd_);
  }
  bool Say(const std::string& bytes) {
    return ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
  }
  /// Whether the server closes the connection within `seconds`.
  bool Dropped(double seconds) {
    timeval limit{static_cast<time_t>(seconds), static_cast<suseconds_t>((seconds - std::floor(seconds)) * 1e6)};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    char block[4096];
    for (ssize_t n; (n = ::recv(fd_, block, sizeof block, 0)) != 0;) {
      if (n < 0) return errno == ECONNRESET;
    }
    return true;
  }

 private:
  int fd_;
};

/// What a TLS client that asks for `name` sends first.
std::string HelloFor(const std::string& name) {
  std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context(SSL_CTX_new(TLS_client_method()), SSL_CTX_free);
  std::unique_ptr<SSL, void (*)(SSL*)> ssl(SSL_new(context.get()), SSL_free);
  BIO* out = BIO_new(BIO_s_mem());
  SSL_set_bio(ssl.get(), BIO_new(BIO_s_mem()), out);
  if (!name.empty()) SSL_set_tlsext_host_name(ssl.get(), name.c_str());
  SSL_connect(ssl.get());
  char* data = nullptr;
  const long size = BIO_get_mem_data(out, &data);
  return std::string(data, static_cast<size_t>(size));
}

ClientHello Look(const std::string& bytes, const std::string& name) {
  return LookAtClientHello(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(), name);
}

FrontDoorLimits Short() {
  FrontDoorLimits limits;
  limits.waiting = 32;
  limits.hello_seconds = 0.5;
  limits.handshake_seconds = 0.5;
  return limits;
}

/// An agent of the job gets in, and its call is answered, within `seconds`.
void CheckAgentJoins(const Server& server, uint32_t node = 0, double seconds = 10) {
  const Clock::time_point before = Clock::now();
  auto stub = StubOf(server.BootstrapOf(node), LauncherName(kJob));
  grpc::ClientContext context;
  context.set_deadline(Deadline(seconds));
  context.set_wait_for_ready(true);
  pb::JoinReply reply;
  grpc::Status status = stub->Join(&context, RequestOf(node), &reply);
  INFO(status.error_message());
  CHECK(status.ok());
  CHECK(Clock::now() - before < std::chrono::duration<double>(seconds));
}

}  // namespace

TEST_CASE("A ClientHello is known by the name that it asks for, however it comes") {
  const std::string name = LauncherName(kJob), hello = HelloFor(name);
  CHECK(Look(hello, name) == ClientHello::wanted);
  for (size_t size = 0; size < hello.size(); ++size) {
    CHECK(Look(hello.substr(0, size), name) == ClientHello::incomplete);
  }
  CHECK(Look(hello, LauncherName("another-job")) == ClientHello::foreign);
  CHECK(Look(HelloFor(name + "x"), name) == ClientHello::foreign);
  CHECK(Look(HelloFor(""), name) == ClientHello::foreign);
  CHECK(Look(HelloFor("w1.node.deepshard"), "*.node.deepshard") == ClientHello::wanted);
  CHECK(Look(HelloFor(".node.deepshard"), "*.node.deepshard") == ClientHello::foreign);
  CHECK(Look(HelloFor("w1.node.deepshard.org"), "*.node.deepshard") == ClientHello::foreign);
  CHECK(Look("GET / HTTP/1.1\r\n\r\n", name) == ClientHello::foreign);
  CHECK(Look(std::string("\x16\x03\x01\xff\xff", 5), name) == ClientHello::foreign);  // longer than any record
  // Any byte of it changed, or cut short and told to be whole: nothing is read beyond its end.
  for (size_t i = 0; i < hello.size(); ++i) {
    for (int change : {1, 0x80, 0xff}) {
      std::string changed = hello;
      changed[i] = static_cast<char>(changed[i] ^ change);
      changed.shrink_to_fit();
      (void)Look(changed, name);
    }
    if (i < 9) continue;
    std::string cut(hello.begin(), hello.begin() + static_cast<long>(i));
    cut[3] = static_cast<char>((i - 5) >> 8);
    cut[4] = static_cast<char>(i - 5);
    CHECK(Look(cut, name) == ClientHello::foreign);
  }
}

TEST_CASE("Silent strangers are dropped, and agents get in meanwhile") {
  Server server(Short());
  std::vector<Stranger> strangers;
  for (int i = 0; i < 20; ++i) strangers.emplace_back(server.server.address());
  CheckAgentJoins(server);
  for (Stranger& stranger : strangers) CHECK(stranger.Dropped(10));
}

TEST_CASE("A stranger that sends a byte now and then is dropped by its first deadline") {
  Server server(Short());
  Stranger stranger(server.server.address());
  const std::string hello = HelloFor(LauncherName(kJob));
  const Clock::time_point before = Clock::now();
  for (char byte : hello) {
    if (!stranger.Say(std::string(1, byte)) || stranger.Dropped(0.1)) break;
  }
  CHECK(Clock::now() - before < std::chrono::seconds(10));  // of the 20 s and more that the whole would take
}

TEST_CASE("A stranger that knows the name but not TLS is dropped when the handshake takes too long") {
  Server server(Short());
  Stranger stranger(server.server.address());
  stranger.Say(HelloFor(LauncherName(kJob)));
  CheckAgentJoins(server);
  CHECK(stranger.Dropped(10));
}

TEST_CASE("What is no ClientHello for this job is dropped at once") {
  FrontDoorLimits limits;
  limits.hello_seconds = limits.handshake_seconds = 600;
  Server server(limits);
  const std::string hello = HelloFor(LauncherName(kJob));
  for (const std::string& bytes : {std::string("GET / HTTP/1.1\r\n\r\n"), HelloFor("launcher.another.deepshard"),
                                   HelloFor(""), std::string(100'000, '\x16'), std::string("\0", 1)}) {
    Stranger stranger(server.server.address());
    stranger.Say(bytes);
    CHECK(stranger.Dropped(10));
  }
  CheckAgentJoins(server);
}

TEST_CASE("A crowd of strangers leaves agents their places") {
  FrontDoorLimits limits;
  limits.hello_seconds = 600;  // only the crowd's size ends them
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  const int crowd = files.rlim_max >= 4000 ? 1500 : 300;
  Server server(limits);
  std::vector<Stranger> strangers;
  for (int i = 0; i < crowd; ++i) strangers.emplace_back(server.server.address());
  CheckAgentJoins(server, 0);
  CheckAgentJoins(server, 1);
  int open = 0;
  for (Stranger& stranger : strangers) open += !stranger.Dropped(0.001);
  CHECK(open <= static_cast<int>(limits.waiting));
}

TEST_CASE("Handshakes that do not end hold up those behind them for their time alone") {
  FrontDoorLimits limits;
  limits.handshakes = 4;  // ControlServer: two a node
  limits.handshake_seconds = 0.5;
  Server server(limits);
  std::vector<Stranger> strangers;
  for (int i = 0; i < 12; ++i) {
    strangers.emplace_back(server.server.address());
    strangers.back().Say(HelloFor(LauncherName(kJob)));
  }
  CheckAgentJoins(server);
  for (Stranger& stranger : strangers) CHECK(stranger.Dropped(10));
}

TEST_CASE("Oversized headers of an agent are refused") {
  Server server;
  auto stub = StubOf(server.BootstrapOf(0), LauncherName(kJob));
  grpc::ClientContext context;
  context.set_deadline(Deadline(kPatience));
  context.AddMetadata("large", std::string(64 << 10, 'x'));
  pb::JoinReply reply;
  CHECK(stub->Join(&context, RequestOf(0), &reply).error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
  CheckAgentJoins(server);
}

}  // namespace ds
