// The agents of one job, from bring-up to their end, and everything that happens to them as one queue of events.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "launcher/bootstrap/bootstrap.h"
#include "launcher/bootstrap/choose.h"
#include "launcher/control/control_server.h"
#include "launcher/control/link_watch.h"
#include "launcher/control/network.h"
#include "proto/deepshard.pb.h"
#include "runtime/base/queue.h"
#include "runtime/base/signal.h"
#include "runtime/run/outcome.h"

namespace ds {

struct SignalArrived {
  int signal = 0;
};
using LaunchEvent = std::variant<ControlEvent, AgentEnded, SignalArrived>;

class Agents {
 public:
  struct Options {
    std::string bootstrap;           ///< launch.bootstrap
    BootstrapSettings settings;      ///< how long agents may take to join, and a launcher be silent, among others
    std::vector<HostSlots> hosts;    ///< one agent each, in order
    std::string interface = "auto";  ///< launch.interface
    std::string token_path, token;   ///< what agents look for to see whether the output folder is shared; may be empty
    std::string contain = "auto";    ///< launch.contain
    std::vector<std::string> skip_checks;  ///< of the preflight
    bool look_closer = false;              ///< for a report: also at what no job waits for
  };
  /// Checks that the bootstrap reaches every host. Throws UsageError naming the host. Makes the job's credentials and
  /// takes this process's signals; call on the main thread before there are others.
  explicit Agents(Options options);
  /// Ends what is left, and gRPC, whose shutdown is not ours to bound: say all there is to say before, and EndWithin.
  ~Agents();

  /// A file that agents look for, and what it holds: to see whether the output folder is shared. Before BringUp.
  void SetToken(std::string path, std::string token) {
    token_path_ = std::move(path);
    token_ = std::move(token);
  }

  /// Starts listening and brings every agent up; returns when all have joined, or with the reason why not.
  /// Cause::kind is `preflight` (code 3) or `signal`. Of several nodes that did not join it has the first one's
  /// name, and what all say; troubles() has them apart.
  std::optional<Cause> BringUp();
  const std::vector<Cause>& troubles() const { return troubles_; }

  const std::vector<deepshard::v1::NodeFacts>& facts() const { return facts_; }
  const std::string& host(uint32_t node) const { return options_.hosts[node].host; }
  /// Nanoseconds by which the node's clock was ahead of ours when it joined.
  const std::vector<int64_t>& clock_offsets() const { return clock_offsets_; }

  /// What an agent said before its node was given up, and is taken from the queue after it, is dropped.
  std::optional<LaunchEvent> Next(std::chrono::steady_clock::time_point until);

  void Send(uint32_t node, deepshard::v1::LauncherMessage message) { server_->Send(node, std::move(message)); }
  void SendAll(const deepshard::v1::LauncherMessage& message);
  void ReadNext(uint32_t node) { server_->ReadNext(node); }
  void BeginAttempt(int64_t attempt) { server_->BeginAttempt(attempt); }
  /// How agents are brought up, and why so.
  const BootstrapChoice& bootstrap() const { return choice_; }
  /// Which address agents dial, and why; after BringUp.
  const LaunchNetwork& network() const { return network_; }
  bool SeesAgentsEnd() const { return bootstrap_->SeesAgentsEnd(); }
  /// Whether all agents are on this machine.
  bool OnThisMachine() const { return bootstrap_->OnThisMachine(); }

  /// Seconds for which the kernel of the node's machine has acknowledged nothing of what was sent; 0: nothing waits.
  double Unacknowledged(uint32_t node, std::chrono::steady_clock::time_point now) {
    return links_.Unacknowledged(node, now);
  }

  /// A node is given up: its agent has no say any more, also once its network has healed, and is ended where this
  /// machine can.
  void Drop(uint32_t node);

  /// Tells every agent to end, waits, kills what does not, and what they left on this machine.
  void EndAll();

 private:
  std::string Secret(uint32_t node) const;
  std::optional<Cause> AwaitJoined();
  std::optional<Cause> OnJoining(LaunchEvent& event, std::vector<bool>& joined);

  Options options_;
  std::string job_id_, token_path_, token_;
  Queue<LaunchEvent> queue_;
  std::unique_ptr<SignalWatcher> signals_;
  BootstrapChoice choice_;
  LaunchNetwork network_;
  std::unique_ptr<Bootstrap> bootstrap_;
  JobAuthority authority_;
  std::unique_ptr<ControlServer> server_;
  std::vector<deepshard::v1::NodeFacts> facts_;
  std::vector<int64_t> clock_offsets_;
  LinkWatch links_;
  std::vector<Cause> troubles_;
  bool joined_ = false, ended_ = false;
};

}  // namespace ds
