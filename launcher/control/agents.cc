#include "launcher/control/agents.h"

#include <signal.h>

#include <algorithm>
#include <set>

#include "proto/names.h"
#include "proto/version.h"
#include "runtime/base/clock.h"
#include "runtime/base/end_within.h"
#include "runtime/base/error.h"
#include "runtime/base/random.h"
#include "runtime/base/secret.h"

namespace ds {
namespace {

namespace pb = ::deepshard::v1;

/// After the first node that does not join: until others are no longer waited for, and how much of them is told.
constexpr auto kMoreTroubles = std::chrono::seconds(1);
constexpr size_t kLongestMessage = 8 << 10;

bool IsIgnored(int signal) {
  struct sigaction action {};
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

Cause Preflight(const std::string& host, const std::string& message) {
  return {"preflight", host, -1, 0, static_cast<int>(ExitCode::preflight), message};
}

}  // namespace

Agents::Agents(Options options)
    : options_(std::move(options)),
      job_id_(RandomHex(8)),
      choice_(ChooseBootstrap(options_.bootstrap, options_.hosts)) {
  // First: threads that exist before would not leave the signals to the watcher.
  std::vector<int> watched{SIGINT, SIGTERM, SIGQUIT, SIGUSR1, SIGUSR2};
  if (!IsIgnored(SIGHUP)) watched.push_back(SIGHUP);  // ignored: nohup started us
  signals_ = std::make_unique<SignalWatcher>(watched, [this](int signal) { queue_.Push(SignalArrived{signal}); });
  bootstrap_ = MakeBootstrap(choice_.kind, options_.settings, [this](AgentEnded ended) { queue_.Push(ended); });
  for (const HostSlots& host : options_.hosts) {
    if (std::string refusal = bootstrap_->Refusal(host); !refusal.empty()) throw UsageError(refusal);
  }
  facts_.resize(options_.hosts.size());
  clock_offsets_.resize(options_.hosts.size());
}

Agents::~Agents() {
  EndAll();
  server_.reset();  // before what its threads use
}

std::optional<Cause> Agents::BringUp() {
  ControlServer::Options server;
  server.job_id = job_id_;
  network_ = ChooseNetwork(bootstrap_->OnThisMachine(), options_.hosts, options_.interface,
                           [this](const HostSlots& host) { return bootstrap_->NetworkName(host); });
  server.bind_address = network_.bind;
  server.reach_address = network_.Reach();
  server.nodes = static_cast<uint32_t>(options_.hosts.size());
  server.lease_seconds = options_.settings.lease_seconds;
  server.on_event = [this](ControlEvent event) { queue_.Push(std::move(event)); };
  EndWithin(options_.settings.join_seconds, static_cast<int>(ExitCode::preflight),
            "error: ds-launch could not begin to listen for agents within launch.join_seconds: gRPC hangs; is this "
            "machine out of memory, threads or open files?");
  server_ = std::make_unique<ControlServer>(server, authority_);
  EndInItsTime();
  std::vector<AgentPlace> agents;
  for (uint32_t node = 0; node < options_.hosts.size(); ++node) {
    agents.push_back({node, options_.hosts[node], Secret(node)});
  }
  try {
    bootstrap_->BringUp(agents);
  } catch (const BringUpError& error) {
    const std::string& where = host(error.node);
    return Preflight(where, "the agent on " + where + " could not be started: " + error.message);
  }
  for (AgentPlace& agent : agents) Wipe(agent.secret);
  std::optional<Cause> trouble = AwaitJoined();
  joined_ = !trouble;
  return trouble;
}

std::string Agents::Secret(uint32_t node) const {
  const uint64_t epoch = server_->Epoch(node);
  Credentials credentials = authority_.Issue(NodeName(job_id_, node, epoch));
  pb::Bootstrap secret;
  secret.set_protocol(kProtocolVersion);
  secret.set_build(BuildVersion());
  secret.set_job_id(job_id_);
  secret.set_node(node);
  secret.set_epoch(epoch);
  secret.set_host(host(node));
  secret.set_launcher_address(server_->address());
  secret.set_ca_certificate(authority_.certificate());
  secret.set_certificate(credentials.certificate);
  secret.set_private_key(credentials.private_key);
  secret.set_lease_seconds(options_.settings.lease_seconds);
  secret.set_token_path(token_path_);
  secret.set_token(token_);
  secret.set_contain(options_.contain);
  secret.set_look_closer(options_.look_closer);
  secret.mutable_skip_checks()->Assign(options_.skip_checks.begin(), options_.skip_checks.end());
  return secret.SerializeAsString();
}

std::optional<Cause> Agents::AwaitJoined() {
  std::vector<bool> joined(options_.hosts.size(), false);
  auto until = std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                                                      std::chrono::duration<double>(options_.settings.join_seconds));
  std::set<std::string> failed;
  while (static_cast<size_t>(std::count(joined.begin(), joined.end(), false)) > failed.size()) {
    std::optional<LaunchEvent> event = queue_.PopUntil(until);
    if (!event && !failed.empty()) break;
    if (!event) {
      for (uint32_t node = 0; node < joined.size(); ++node) {
        if (joined[node]) continue;
        const std::string waiting = bootstrap_->Waiting(node);
        troubles_.push_back(Preflight(host(node), "the agent on " + host(node) + " did not join within " +
                                                      DurationText(options_.settings.join_seconds) +
                                                      " (launch.join_seconds)" +
                                                      (waiting.empty() ? "" : ": " + waiting)));
      }
      break;
    }
    std::optional<Cause> trouble = OnJoining(*event, joined);
    if (!trouble) continue;
    if (trouble->kind == "signal") return trouble;
    const std::string where = trouble->host;
    if (!failed.contains(where)) troubles_.push_back(*trouble);
    // What else is wrong is wanted in the same run: hosts fail within a moment of each other.
    if (failed.empty()) until = std::min(until, std::chrono::steady_clock::now() + kMoreTroubles);
    failed.insert(where);
  }
  if (troubles_.empty()) return std::nullopt;
  Cause all = troubles_[0];
  for (size_t i = 1; i < troubles_.size() && all.message.size() < kLongestMessage; ++i)
    all.message += "\n  and: " + troubles_[i].message;
  return all;
}

std::optional<Cause> Agents::OnJoining(LaunchEvent& event, std::vector<bool>& joined) {
  if (auto* arrived = std::get_if<SignalArrived>(&event)) {
    return Cause{"signal", "", -1, arrived->signal, 0, "ds-launch received " + SignalName(arrived->signal)};
  }
  if (auto* ended = std::get_if<AgentEnded>(&event)) {
    if (!ended->was_up)
      return Preflight(host(ended->node),
                       "the agent on " + host(ended->node) + " could not be started: " + ended->text);
    return Preflight(host(ended->node), "the agent on " + host(ended->node) + " ended before every node had joined: " +
                                            EndText(ended->end) + (ended->text.empty() ? "" : ": " + ended->text));
  }
  auto& control = std::get<ControlEvent>(event);
  switch (control.kind) {
    case ControlEvent::Kind::joined:
      joined[control.node] = true;
      links_.Watch(control.node, control.text);
      facts_[control.node] = *control.facts;
      clock_offsets_[control.node] = control.facts->clock_unix_ns() - UnixNanoseconds();
      return std::nullopt;
    case ControlEvent::Kind::refused:
      return Preflight(host(control.node), "versions differ on " + host(control.node) + ": " + control.text);
    case ControlEvent::Kind::message:
      ReadNext(control.node);  // nothing of weight before workers run
      return std::nullopt;
    case ControlEvent::Kind::closed:
      return Preflight(host(control.node),
                       "the agent on " + host(control.node) + " closed its connection before every node had joined");
  }
  return std::nullopt;
}

void Agents::SendAll(const pb::LauncherMessage& message) {
  for (uint32_t node = 0; node < options_.hosts.size(); ++node) Send(node, message);
}

std::optional<LaunchEvent> Agents::Next(std::chrono::steady_clock::time_point until) {
  for (;;) {
    std::optional<LaunchEvent> event = queue_.PopUntil(until);
    const auto* control = event ? std::get_if<ControlEvent>(&*event) : nullptr;
    if (!control || !server_ || control->epoch == server_->Epoch(control->node)) return event;
  }
}

void Agents::Drop(uint32_t node) {
  links_.Forget(node);
  if (server_) server_->Fence(node);
  bootstrap_->Kill(node);
}

void Agents::EndAll() {
  if (std::exchange(ended_, true)) return;
  if (server_) server_->EndSessions();
  // Agents that did not all join have no workers to end: they need no time.
  bootstrap_->EndAll(/*patience_seconds=*/joined_ ? 8 : 0.5);
}

}  // namespace ds
