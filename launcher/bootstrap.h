// Bring-up: getting one agent to run on a host and handing it its secret. Only this first contact differs between
// `local`, `ssh`, `slurm`, `mpi` and `daemon`; everything after it goes over the agent's own connection to the
// launcher.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/process.h"

namespace ds {

/// The end of an agent as its bootstrap saw it (the agent's own session tells the rest).
struct AgentEnded {
  uint32_t node = 0;
  ProcessEnd end;
};

class Bootstrap {
 public:
  virtual ~Bootstrap() = default;

  /// Whether this bootstrap can bring an agent up on `host`; otherwise the reason why not.
  virtual std::string Refusal(const std::string& host) const = 0;

  /// What it would run for `host`: for --dry-run.
  virtual std::vector<std::string> Argv(const std::string& host) const = 0;

  /// The address that the launcher should listen on for these agents.
  virtual std::string ListenAddress() const = 0;

  /// Starts the agent of `node` on `host` and hands it `secret` (a serialized deepshard.v1.Bootstrap) over a channel
  /// that nobody else can read: never argv, never the environment. Throws RuntimeError. Call from the main thread.
  virtual void BringUp(uint32_t node, const std::string& host, const std::string& secret) = 0;

  /// Whether the end of an agent's process is told, with its signal.
  virtual bool SeesAgentsEnd() const = 0;

  /// Kills the agent of `node`, where this bootstrap can reach its process; its workers do not survive it.
  virtual void Kill(uint32_t node) = 0;

  /// Waits up to `patience_seconds` for agents to end, then kills them and whatever else they left here.
  virtual void EndAll(double patience_seconds) = 0;
};

/// `kind`: local, ssh, slurm, mpi, daemon or auto. `on_end` is called on any thread. Throws UsageError where this build
/// has no such bootstrap.
std::unique_ptr<Bootstrap> MakeBootstrap(const std::string& kind, std::function<void(AgentEnded)> on_end);

}  // namespace ds
