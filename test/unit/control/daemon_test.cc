// What a daemon refuses of those who hold certificates of its site: by calls that ds-launch would not make.
#include <fcntl.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "launcher/control/credentials.h"
#include "launcher/control/site_identity.h"
#include "proto/channel.h"
#include "proto/daemon.grpc.pb.h"
#include "proto/version.h"
#include "runtime/base/file.h"
#include "runtime/base/process.h"
#include "runtime/base/socket.h"
#include "runtime/site/site.h"
#include "test/catch.h"

namespace ds {
namespace {

namespace fs = std::filesystem;
namespace pb = ::deepshard::v1;

/// Where a service manager would listen.
class NotifySocket {
 public:
  NotifySocket() : fd_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path().c_str(), path().size());
    REQUIRE(::bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  }
  ~NotifySocket() { ::close(fd_); }
  std::string path() const { return (folder_.path() / "notify").string(); }
  std::string Receive() const {
    pollfd wait{fd_, POLLIN, 0};
    char text[256];
    const ssize_t n = ::poll(&wait, 1, 60'000) > 0 ? ::recv(fd_, text, sizeof text, 0) : 0;
    return std::string(text, n > 0 ? static_cast<size_t>(n) : 0);
  }

 private:
  SocketFolder folder_;
  int fd_;
};

/// ds-agent --daemon as a process, with its log.
class RealDaemon {
 public:
  RealDaemon() {
    char pattern[] = "/tmp/ds-daemon-XXXXXX";
    folder_ = ::mkdtemp(pattern);
    MakeSiteIdentity(folder_ + "/id", {{"127.0.0.1", "", {0}}});
    const std::string config = folder_ + "/id/nodes/127.0.0.1/daemon.yaml";
    std::ofstream(config) << "listen: 127.0.0.1\nport: 0\nca_certificate: ca.crt\ncertificate: node.crt\n"
                             "private_key: node.key\njobs: 4\n";
    SpawnOptions options;
    options.argv = {std::string(DS_BIN_DIR) + "/ds-agent", "--daemon", "--config", config};
    options.environment = InheritedEnvironment();
    SetVariable(options.environment, "TMPDIR", folder_);
    SetVariable(options.environment, "NOTIFY_SOCKET", notify_.path());
    const int log = ::open((folder_ + "/log").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    options.stdout_fd = options.stderr_fd = log;
    pid_ = Spawn(options);
    ::close(log);
    for (int tries = 0; tries < 2000 && port_.empty(); ++tries) {
      const std::string text = ReadFile(folder_ + "/log"), before = "listening on 127.0.0.1:";
      if (const size_t at = text.find(before); at != std::string::npos) {
        port_ = text.substr(at + before.size(), text.find(' ', at + before.size()) - at - before.size());
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    REQUIRE(!port_.empty());
    authority_ = std::make_unique<JobAuthority>(ReadFile(folder_ + "/id/ca.crt"), ReadFile(folder_ + "/id/ca.key"));
  }
  ~RealDaemon() {
    End();
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  void End() {
    if (pid_ > 0) {
      ::kill(pid_, SIGTERM);
      ::waitpid(pid_, nullptr, 0);
    }
    pid_ = -1;
  }
  const NotifySocket& notify() const { return notify_; }

  /// What the daemon answers to a hand-over by the holder of a certificate for `name`.
  struct Answer {
    grpc::Status status;
    pb::DaemonReply reply;  ///< the first
  };
  Answer Ask(const std::string& name, const pb::HandOver& hand_over) const {
    const Credentials own = authority_->Issue(name);
    auto channel = SecureChannel("127.0.0.1:" + port_, SiteNodeName("127.0.0.1"),
                                 {authority_->certificate(), own.certificate, own.private_key}, 30);
    auto stub = pb::Daemon::NewStub(channel);
    grpc::ClientContext context;
    context.set_deadline(Deadline(60));
    auto stream = stub->Run(&context);
    pb::DaemonRequest request;
    *request.mutable_hand_over() = hand_over;
    Answer answer;
    stream->Write(request);
    if (stream->Read(&answer.reply)) context.TryCancel();  // otherwise it has ended, and the daemon says why
    answer.status = stream->Finish();
    return answer;
  }

 private:
  NotifySocket notify_;
  std::string folder_, port_;
  pid_t pid_ = -1;
  std::unique_ptr<JobAuthority> authority_;
};

pb::HandOver Good() {
  pb::HandOver hand_over;
  hand_over.set_protocol(kProtocolVersion);
  hand_over.set_build(BuildVersion());
  const passwd* entry = ::getpwuid(::geteuid());
  hand_over.set_user(entry ? entry->pw_name : std::to_string(::geteuid()));
  hand_over.set_job_id("0123456789abcdef");
  hand_over.set_epoch(1);
  hand_over.set_bootstrap("no message for an agent: it ends at once");
  return hand_over;
}

}  // namespace

TEST_CASE("A node's certificate hands over no job") {
  RealDaemon daemon;
  const auto answer = daemon.Ask(SiteNodeName("127.0.0.1"), Good());
  CHECK(answer.status.error_code() == grpc::StatusCode::PERMISSION_DENIED);
  CHECK(!answer.reply.has_started());
}

TEST_CASE("A job that was handed over is not handed over again") {
  RealDaemon daemon;
  pb::HandOver hand_over = Good();
  REQUIRE(daemon.Ask(kSiteLauncherName, hand_over).reply.has_started());
  const auto again = daemon.Ask(kSiteLauncherName, hand_over);
  REQUIRE(again.reply.has_refused());
  CHECK(again.reply.refused().reason().find("handed over before") != std::string::npos);
  hand_over.set_epoch(0);
  CHECK(daemon.Ask(kSiteLauncherName, hand_over).reply.has_refused());
  hand_over.set_epoch(2);  // the node was given up, and has a new agent
  CHECK(daemon.Ask(kSiteLauncherName, hand_over).reply.has_started());
  hand_over.set_node(1);
  hand_over.set_epoch(1);
  CHECK(daemon.Ask(kSiteLauncherName, hand_over).reply.has_started());
}

TEST_CASE("A daemon tells its service manager when it listens and when it ends, as its unit says") {
  RealDaemon daemon;
  CHECK(daemon.notify().Receive().starts_with("READY=1"));
  daemon.End();
  CHECK(daemon.notify().Receive() == "STOPPING=1");
  const std::string unit = ReadFile(std::string(DS_SOURCE_DIR) + "/scripts/systemd/ds-agent@.service");
  for (const char* line : {"\nType=notify\n", "\nKillMode=control-group\n", "/ds-agent --daemon\n",
                           "\nNoNewPrivileges=yes\n", "\nDelegate=yes\n", "\nUser=%i\n"}) {
    CHECK(unit.find(line) != std::string::npos);
  }
}

TEST_CASE("What is no hand-over of ds-launch is refused by a daemon") {
  RealDaemon daemon;
  pb::HandOver hand_over = Good();
  SECTION("no job") { hand_over.clear_job_id(); }
  SECTION("a job's id without end") { hand_over.set_job_id(std::string(1000, 'x')); }
  SECTION("no credentials") { hand_over.clear_bootstrap(); }
  SECTION("more than an agent reads") { hand_over.set_bootstrap(std::string(2 << 20, 'x')); }
  SECTION("another user's") { hand_over.set_user("nobody-at-all"); }
  CHECK(daemon.Ask(kSiteLauncherName, hand_over).reply.has_refused());
  CHECK(daemon.Ask(kSiteLauncherName, Good()).reply.has_started());  // it serves on
}

}  // namespace ds
