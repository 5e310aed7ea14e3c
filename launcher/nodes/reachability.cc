#include "launcher/nodes/reachability.h"

#include <algorithm>
#include <chrono>

#include "runtime/base/error.h"
#include "runtime/base/process.h"
#include "runtime/base/signal.h"

namespace ds {
namespace {

namespace pb = ::deepshard::v1;
using Clock = std::chrono::steady_clock;

constexpr double kRoomSeconds = 5;  // beside kProbeSeconds, for messages on a loaded machine

Clock::time_point After(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

class Probe {
 public:
  Probe(Agents& agents, size_t nodes, const std::function<std::string(uint32_t)>& address_of)
      : agents_(agents), nodes_(nodes), address_of_(address_of), listening_(nodes), results_(nodes) {
    probed_.outcomes.resize(nodes);
  }

  ProbeResults Run() {
    for (uint32_t node = 0; node < nodes_; ++node) {
      pb::LauncherMessage message;
      message.mutable_probe_listen()->set_address(address_of_(node));
      agents_.Send(node, std::move(message));
    }
    Await(listening_, kRoomSeconds);
    if (probed_.cause) return probed_;
    for (uint32_t node = 0; node < nodes_; ++node) Dial(node);
    Await(results_, kProbeSeconds + kRoomSeconds);
    if (probed_.cause) return probed_;
    for (uint32_t node = 0; node < nodes_; ++node) Judge(node);
    return probed_;
  }

 private:
  template <class T>
  void Await(std::vector<std::optional<T>>& answers, double seconds) {
    const Clock::time_point until = After(seconds);
    const auto missing = [&] { return std::any_of(answers.begin(), answers.end(), [](auto& a) { return !a; }); };
    while (missing() && !probed_.cause) {
      std::optional<LaunchEvent> event = agents_.Next(until);
      if (!event) return;
      std::visit([this](auto& e) { On(e); }, *event);
    }
  }

  void On(SignalArrived& arrived) {
    probed_.cause = Cause{"signal", "", -1, arrived.signal, 0, "ds-launch received " + SignalName(arrived.signal)};
  }
  void On(AgentEnded& ended) {
    Lose(ended.node, "the agent on " + agents_.host(ended.node) + " ended during the preflight: " + EndText(ended.end) +
                         (ended.text.empty() ? "" : ": " + ended.text));
  }
  void On(ControlEvent& event) {
    if (event.kind == ControlEvent::Kind::closed)
      return Lose(event.node,
                  "the agent on " + agents_.host(event.node) + " closed its connection during the preflight");
    if (event.kind != ControlEvent::Kind::message) return;
    agents_.ReadNext(event.node);
    if (event.message->has_probe_listening()) listening_[event.node] = event.message->probe_listening();
    if (event.message->has_probe_result()) results_[event.node] = event.message->probe_result();
  }
  void Lose(uint32_t node, const std::string& message) {
    probed_.cause = Cause{"preflight", agents_.host(node), -1, 0, static_cast<int>(ExitCode::preflight), message};
  }

  void Dial(uint32_t node) {
    pb::LauncherMessage message;
    pb::ProbeDial* dial = message.mutable_probe_dial();
    dial->set_seconds(kProbeSeconds);
    for (uint32_t other : NodesToDial(node, nodes_)) {
      if (!listening_[other] || !listening_[other]->error().empty()) continue;
      pb::ProbePeer* peer = dial->add_peers();
      peer->set_node(other);
      peer->set_address(address_of_(other));
      peer->set_port(listening_[other]->port());
      peer->set_greeting(listening_[other]->greeting());
    }
    agents_.Send(node, std::move(message));
  }

  void Judge(uint32_t node) {
    ProbeOutcome& outcome = probed_.outcomes[node];
    const std::string address = address_of_(node);
    if (!listening_[node]) {
      outcome.text = "the agent did not say within " + std::to_string(static_cast<int>(kRoomSeconds)) +
                     " s that it listens at " + address;
      return;
    }
    if (!listening_[node]->error().empty()) {
      outcome.text = "its data address " + address + " cannot be listened at (" + listening_[node]->error() +
                     "): the address is not this node's; give the name or address that the node has";
      return;
    }
    if (!results_[node]) {
      outcome.text = "the agent did not tell within " + std::to_string(static_cast<int>(kProbeSeconds + kRoomSeconds)) +
                     " s which nodes it reaches";
      return;
    }
    for (const pb::ProbeResult::Peer& peer : results_[node]->peers()) {
      ++outcome.dialled;
      outcome.milliseconds = std::max(outcome.milliseconds, peer.milliseconds());
      if (peer.error().empty() || peer.node() >= nodes_) continue;
      outcome.text += (outcome.text.empty() ? "" : "; ") + std::string("it does not reach ") +
                      agents_.host(peer.node()) + " at " + address_of_(peer.node()) + " (" + peer.error() + ")";
    }
    if (!outcome.text.empty())
      outcome.text += ": open TCP between the nodes (firewall, routes), or give addresses of a network that they share";
  }

  Agents& agents_;
  size_t nodes_;
  const std::function<std::string(uint32_t)>& address_of_;
  std::vector<std::optional<pb::ProbeListening>> listening_;
  std::vector<std::optional<pb::ProbeResult>> results_;
  ProbeResults probed_;
};

}  // namespace

std::vector<uint32_t> NodesToDial(size_t index, size_t count) {
  std::vector<uint32_t> nodes;
  if (count <= kAllPairs) {
    for (size_t other = 0; other < count; ++other)
      if (other != index) nodes.push_back(static_cast<uint32_t>(other));
    return nodes;
  }
  for (size_t distance = 1; distance < count; distance *= 2)
    nodes.push_back(static_cast<uint32_t>((index + distance) % count));
  return nodes;
}

ProbeResults ProbeNodes(Agents& agents, size_t nodes, const std::function<std::string(uint32_t)>& address_of) {
  return Probe(agents, nodes, address_of).Run();
}

std::vector<ProbeOutcome> OutcomesOf(const DataNetwork& network, const std::vector<HostSlots>& hosts) {
  std::vector<ProbeOutcome> outcomes(hosts.size());
  for (const PreflightTrouble& trouble : network.troubles) {
    for (size_t node = 0; node < hosts.size(); ++node)
      if (hosts[node].host == trouble.host) outcomes[node].text = trouble.message;
  }
  return outcomes;
}

}  // namespace ds
