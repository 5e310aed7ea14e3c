// Bring-up: getting one agent to run on each host and handing it its secret. Only this first contact differs between
// `local`, `ssh`, `slurm`, `mpi` and `daemon`; everything after it goes over the agent's own connection to the
// launcher.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/process.h"
#include "runtime/job/hostfile.h"

namespace ds {

/// An agent that shall run.
struct AgentPlace {
  uint32_t node = 0;  ///< index in the job
  HostSlots host;
  std::string secret;  ///< a serialized deepshard.v1.Bootstrap
};

/// The end of an agent, or of the program that brought it up, as its bootstrap saw it (the agent's own session tells
/// the rest).
struct AgentEnded {
  uint32_t node = 0;
  ProcessEnd end;
  std::string text{};  ///< what the bootstrap knows of why (ssh's own message, say); empty: nothing
  bool was_up = true;  ///< false: no agent ever ran; `text` tells why, whole and with what to do
};

/// A command that a bootstrap runs: for --dry-run.
struct BootstrapCommand {
  std::string host;  ///< or the hosts that it serves
  std::vector<std::string> argv;
};

class Bootstrap {
 public:
  virtual ~Bootstrap() = default;

  /// local, ssh, slurm, mpi or daemon.
  virtual std::string name() const = 0;

  /// Whether this bootstrap can bring an agent up on `host`; otherwise the reason why not.
  virtual std::string Refusal(const HostSlots& host) const = 0;

  virtual std::vector<BootstrapCommand> Commands(const std::vector<HostSlots>& hosts) const = 0;

  /// The name or address by which `host` is found in the network, where this bootstrap knows better than the hostfile.
  virtual std::string NetworkName(const HostSlots& host) const { return host.host; }

  /// Whether every agent is on this machine, and the launcher listens on loopback alone.
  virtual bool OnThisMachine() const = 0;

  /// Starts the agents and hands each its secret over a channel that nobody else can read: never argv, never the
  /// environment. Call once, on the main thread. Throws BringUpError where one cannot be started here; what goes wrong
  /// later is told as its end.
  virtual void BringUp(const std::vector<AgentPlace>& agents) = 0;

  /// Why the agent of `node` has not joined yet, as far as this bootstrap sees; empty: it does not.
  virtual std::string Waiting(uint32_t /*node*/) const { return ""; }

  /// Whether the end of an agent's process is told, with its signal.
  virtual bool SeesAgentsEnd() const = 0;

  /// Kills the agent of `node`, where this bootstrap can reach its process; its workers do not survive it.
  virtual void Kill(uint32_t node) = 0;

  /// Waits up to `patience_seconds` for agents to end, then kills them and whatever else they left here.
  virtual void EndAll(double patience_seconds) = 0;
};

/// Which agent could not be brought up, and why.
struct BringUpError {
  uint32_t node = 0;
  std::string message;
};

using OnAgentEnd = std::function<void(AgentEnded)>;  ///< on any thread

/// What the user may say of bringing agents up, by the spec's keys.
struct BootstrapSettings {
  std::string agent = "auto";        ///< launch.agent: ds-agent's path on the nodes, or a name for their PATH
  std::string ssh_config = "auto";   ///< launch.ssh_config: a file for ssh -F
  int ssh_port = 0;                  ///< launch.ssh_port; 0: as ssh is configured
  double join_seconds = 60;          ///< launch.join_seconds: until when every agent must have joined
  double lease_seconds = 30;         ///< launch.lease_seconds
  std::string daemon_site = "auto";  ///< launch.daemon_site: the launcher's end of the site identity
  int daemon_port = 0;               ///< launch.daemon_port; 0: as the site file says

  /// argv[0] of an agent: `agent`, or ds-agent beside this program.
  std::string AgentProgram() const;
};

std::unique_ptr<Bootstrap> MakeLocalBootstrap(const BootstrapSettings& settings, OnAgentEnd on_end);
std::unique_ptr<Bootstrap> MakeSshBootstrap(const BootstrapSettings& settings, OnAgentEnd on_end);
/// Throws UsageError where mpirun is not Open MPI's, or this build has no MPI.
std::unique_ptr<Bootstrap> MakeMpiBootstrap(const BootstrapSettings& settings, OnAgentEnd on_end);
std::unique_ptr<Bootstrap> MakeDaemonBootstrap(const BootstrapSettings& settings, OnAgentEnd on_end);

/// Throws UsageError outside a SLURM allocation.
std::unique_ptr<Bootstrap> MakeSlurmBootstrap(const BootstrapSettings& settings, OnAgentEnd on_end);

/// `kind`: local, ssh, slurm, mpi or daemon, as ChooseBootstrap gives it. Throws UsageError where this build has no
/// such bootstrap.
std::unique_ptr<Bootstrap> MakeBootstrap(const std::string& kind, const BootstrapSettings& settings, OnAgentEnd on_end);

}  // namespace ds
