// Bootstrap `daemon`: agents of the user's that listen already (ds-agent --daemon) are dialled, all at once, and each
// starts one of the job's own. Its end is told on the stream that stays open meanwhile.
#include <pwd.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "launcher/bootstrap/bootstrap.h"
#include "launcher/bootstrap/daemon_trouble.h"
#include "proto/channel.h"
#include "proto/daemon.grpc.pb.h"
#include "proto/deepshard.pb.h"
#include "proto/hand_over.h"
#include "proto/version.h"
#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/site/site.h"

namespace ds {
namespace {

namespace pb = ::deepshard::v1;

std::string UserName() {
  const passwd* entry = ::getpwuid(::geteuid());
  return entry ? std::string(entry->pw_name) : std::to_string(::geteuid());
}

/// One daemon's stream. Deletes itself when gRPC is done with it; `on_done` runs before, once, on a gRPC thread. The
/// channel must not be given up there (gRPC would wait for this very thread), so whoever makes the call keeps it.
class DaemonCall final : public grpc::ClientBidiReactor<pb::DaemonRequest, pb::DaemonReply> {
 public:
  struct Outcome {
    bool started = false, refused = false, ended = false;
    ProcessEnd end;
    std::string text;
    grpc::Status status;
  };
  using OnOutcome = std::function<void(const Outcome&)>;

  DaemonCall(const std::shared_ptr<grpc::Channel>& channel, OnOutcome on_done)
      : stub_(pb::Daemon::NewStub(channel)), on_done_(std::move(on_done)) {}

  void Start(pb::DaemonRequest first) {
    stub_->async()->Run(&context_, this);
    AddHold();  // for writes that come later, from other threads
    passed_.Give();
    StartRead(&reply_);
    Write(std::move(first));
    StartCall();
  }

  /// Any thread, until on_done.
  void Write(pb::DaemonRequest request) {
    std::lock_guard lock(mutex_);
    if (released_) return;
    requests_.push_back(std::move(request));
    if (requests_.size() > 1) return;
    passed_.Give();
    StartWrite(&requests_.front());
  }

  void Cancel() { context_.TryCancel(); }

  bool started() {
    std::lock_guard lock(mutex_);
    return outcome_.started;
  }

 private:
  void OnReadDone(bool ok) override {
    passed_.Take();
    if (!ok) return Release();
    {
      std::lock_guard lock(mutex_);
      if (reply_.has_started()) outcome_.started = true;
      if (reply_.has_refused()) {
        outcome_.refused = true;
        outcome_.text = reply_.refused().reason();
      }
      if (reply_.has_ended()) {
        outcome_.ended = true;
        outcome_.end = {reply_.ended().code(), reply_.ended().signal()};
        outcome_.text = reply_.ended().text();
      }
    }
    reply_.Clear();
    passed_.Give();
    StartRead(&reply_);
  }

  void OnWriteDone(bool ok) override {
    passed_.Take();
    std::lock_guard lock(mutex_);
    Wipe(requests_.front());
    requests_.pop_front();
    if (!ok) requests_.clear();
    if (released_ || requests_.empty()) return;
    passed_.Give();
    StartWrite(&requests_.front());
  }

  void OnDone(const grpc::Status& status) override {
    passed_.Take();
    Outcome outcome;
    {
      std::lock_guard lock(mutex_);
      outcome = outcome_;
    }
    outcome.status = status;
    stub_.reset();
    on_done_(outcome);
    delete this;
  }

  static void Wipe(pb::DaemonRequest& request) {
    if (!request.has_hand_over()) return;
    std::string& secret = *request.mutable_hand_over()->mutable_bootstrap();
    ::explicit_bzero(secret.data(), secret.size());
  }

  void Release() {
    {
      std::lock_guard lock(mutex_);
      if (std::exchange(released_, true)) return;
    }
    passed_.Give();
    RemoveHold();
  }

  HandOver passed_;
  std::unique_ptr<pb::Daemon::Stub> stub_;
  OnOutcome on_done_;
  grpc::ClientContext context_;
  pb::DaemonReply reply_;
  std::mutex mutex_;
  std::deque<pb::DaemonRequest> requests_;
  Outcome outcome_;
  bool released_ = false;
};

class DaemonBootstrap final : public Bootstrap {
 public:
  DaemonBootstrap(const BootstrapSettings& settings, OnAgentEnd on_end)
      : on_end_(std::move(on_end)), lease_seconds_(settings.lease_seconds) {
    const std::filesystem::path path =
        settings.daemon_site == "auto" ? SiteFolder() / "site.yaml" : std::filesystem::path(settings.daemon_site);
    try {
      const SiteFile site = ReadSiteFile(path);
      port_ = settings.daemon_port != 0 ? static_cast<uint16_t>(settings.daemon_port) : site.port;
      identity_ = LoadIdentity(site.files);
    } catch (const Error& error) {
      throw Error(error.code(),
                  std::string("bootstrap `daemon` needs the site identity that its daemons know: ") + error.what() +
                      (settings.daemon_site == "auto"
                           ? "\n(ds-launch --make-identity DIR makes one; launch.daemon_site names its site.yaml)"
                           : ""));
    }
  }
  ~DaemonBootstrap() override { EndAll(0); }

  std::string name() const override { return "daemon"; }
  std::string Refusal(const HostSlots&) const override { return ""; }

  std::vector<BootstrapCommand> Commands(const std::vector<HostSlots>& hosts) const override {
    std::vector<BootstrapCommand> commands;
    for (const HostSlots& host : hosts) {
      commands.push_back(
          {host.host, {"dial", Address(host.host), "as", kSiteLauncherName, "expecting", SiteNodeName(host.host)}});
    }
    return commands;
  }

  bool OnThisMachine() const override { return false; }
  bool SeesAgentsEnd() const override { return true; }

  void BringUp(const std::vector<AgentPlace>& agents) override {
    for (const AgentPlace& agent : agents) Dial(agent);
    watch_ = std::thread([this] { CancelSilent(); });
  }

  void Kill(uint32_t node) override {
    std::lock_guard lock(mutex_);
    auto it = calls_.find(node);
    if (it == calls_.end()) return;
    pb::DaemonRequest request;
    request.mutable_kill();
    it->second->Write(std::move(request));
  }

  void EndAll(double patience_seconds) override {
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, std::chrono::duration<double>(patience_seconds), [&] { return calls_.empty(); });
      for (auto& [node, call] : calls_) {
        pb::DaemonRequest request;
        request.mutable_kill();
        call->Write(std::move(request));
      }
      // Daemons tell the end of what they killed within moments; one that cannot be reached ends it with the stream.
      changed_.wait_for(lock, std::chrono::seconds(patience_seconds > 1 ? 2 : 1), [&] { return calls_.empty(); });
      ending_ = true;
      for (auto& [node, call] : calls_) call->Cancel();
      changed_.notify_all();
      changed_.wait(lock, [&] { return calls_.empty() && telling_ == 0; });
    }
    if (watch_.joinable()) watch_.join();
  }

 private:
  std::string Address(const std::string& host) const { return Bracketed(host) + ":" + std::to_string(port_); }

  void Dial(const AgentPlace& agent) {
    const std::string host = agent.host.host;
    TlsIdentity tls{identity_.ca_certificate, identity_.certificate, identity_.private_key};
    channels_.push_back(SecureChannel(Address(host), SiteNodeName(host), tls, lease_seconds_));
    auto* call = new DaemonCall(channels_.back(), [this, node = agent.node, host](const DaemonCall::Outcome& outcome) {
      Ended(node, host, outcome);
    });
    pb::Bootstrap bootstrap;
    bootstrap.ParseFromString(agent.secret);
    pb::DaemonRequest request;
    pb::HandOver* hand_over = request.mutable_hand_over();
    hand_over->set_protocol(kProtocolVersion);
    hand_over->set_build(BuildVersion());
    hand_over->set_user(agent.host.user.empty() ? UserName() : agent.host.user);
    hand_over->set_job_id(bootstrap.job_id());
    hand_over->set_node(agent.node);
    hand_over->set_epoch(bootstrap.epoch());
    hand_over->set_bootstrap(agent.secret);
    ::explicit_bzero(bootstrap.mutable_private_key()->data(), bootstrap.private_key().size());
    {
      std::lock_guard lock(mutex_);
      calls_[agent.node] = call;
    }
    call->Start(std::move(request));
  }

  /// Daemons that take the connection and say nothing.
  void CancelSilent() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(kCallSeconds), [&] { return ending_; });
    if (ending_) return;
    for (auto& [node, call] : calls_) {
      if (!call->started()) call->Cancel();
    }
  }

  /// On a gRPC thread.
  void Ended(uint32_t node, const std::string& host, const DaemonCall::Outcome& outcome) {
    AgentEnded ended;
    ended.node = node;
    ended.end = outcome.ended ? outcome.end : ProcessEnd{static_cast<int>(ExitCode::preflight), 0};
    ended.text = outcome.text;
    ended.was_up = outcome.started;
    bool explain = false;
    {
      std::lock_guard lock(mutex_);
      if (!outcome.ended && !outcome.refused) {
        explain = !outcome.started && !ending_;
        ended.text = "the connection to its daemon is lost: " +
                     (outcome.status.ok() ? std::string("the daemon ended it") : outcome.status.error_message());
      }
      calls_.erase(node);
      ++telling_;
    }
    if (!explain) return Tell(std::move(ended));
    // It dials again, and waits: not on a thread of gRPC's.
    std::thread([this, ended = std::move(ended), host, status = outcome.status]() mutable {
      std::string what = status.error_message();
      if (status.error_code() == grpc::StatusCode::CANCELLED) {
        what = "the daemon took the connection and did not answer within " + std::to_string(kCallSeconds) + " s";
      }
      ended.text = DaemonTrouble(host, port_, identity_, what);
      Tell(std::move(ended));
    }).detach();
  }

  /// The last that a thread does with this object.
  void Tell(AgentEnded ended) {
    on_end_(std::move(ended));
    std::lock_guard lock(mutex_);
    --telling_;
    changed_.notify_all();
  }

  OnAgentEnd on_end_;
  double lease_seconds_;
  uint16_t port_ = kDaemonPort;
  Identity identity_;
  std::vector<std::shared_ptr<grpc::Channel>> channels_;  ///< given up by the destructor
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<uint32_t, DaemonCall*> calls_;  ///< each until it deletes itself
  int telling_ = 0;                        ///< ends that are being told
  bool ending_ = false;
  std::thread watch_;
};

}  // namespace

std::unique_ptr<Bootstrap> MakeDaemonBootstrap(const BootstrapSettings& settings, OnAgentEnd on_end) {
  return std::make_unique<DaemonBootstrap>(settings, std::move(on_end));
}

}  // namespace ds
