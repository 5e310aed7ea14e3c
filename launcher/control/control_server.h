// The launcher's end of the control plane: agents join here, hold one session each, and rendezvous goes through it.
//
// Only a holder of this job's credentials gets as far as a method, and only as the node that its certificate names.
// Each message says job, epoch and number: one that is repeated, left out or of the past ends its session.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "launcher/control/credentials.h"
#include "proto/front_door_limits.h"

namespace deepshard::v1 {
class AgentMessage;
class LauncherMessage;
class NodeFacts;
}  // namespace deepshard::v1

namespace ds {

struct ControlEvent {
  enum class Kind {
    joined,   ///< a node proved itself and has its session; `facts`; `text`: its end of the connection
    refused,  ///< a node of this job whose program does not fit; `text` names both versions
    message,  ///< `message`; answer with ControlServer::ReadNext once it is dealt with
    closed,   ///< the node's session ended
  };
  Kind kind;
  uint32_t node = 0;
  std::string text;
  std::shared_ptr<deepshard::v1::NodeFacts> facts;
  std::shared_ptr<deepshard::v1::AgentMessage> message;
  uint64_t epoch = 0;  ///< of the agent that it is about
};

class ControlServer {
 public:
  struct Options {
    std::string job_id;
    std::string bind_address;   ///< HOST without port; the port is the system's choice
    std::string reach_address;  ///< HOST that agents dial, or several with commas; empty: bind_address
    uint32_t nodes = 0;
    double lease_seconds = 30;
    std::function<void(ControlEvent)> on_event;  ///< any thread; must return at once
    FrontDoorLimits limits{};                    ///< of strangers
  };
  /// Listens. Throws RuntimeError naming the address.
  ControlServer(const Options& options, const JobAuthority& authority);
  ~ControlServer();  ///< ends every session and wait; no event comes after

  /// HOST:PORT that agents dial, or several with commas
  const std::string& address() const;

  /// Dropped when the node has no session.
  void Send(uint32_t node, deepshard::v1::LauncherMessage message);

  /// Tells every agent to end and closes its session.
  void EndSessions();

  /// Lets the node's next message in.
  void ReadNext(uint32_t node);

  /// Of the node, from 1: what its agent's certificate and bootstrap must say.
  uint64_t Epoch(uint32_t node) const;

  /// The node is given up. From here on its agent has no say: its session is closed and brings no more events, what
  /// it still sends is dropped, its calls (the store's too) are refused, also after its network has healed. An agent
  /// that is brought up with credentials of the next epoch may join in its place.
  void Fence(uint32_t node);

  /// A fresh rendezvous store for the attempt.
  void BeginAttempt(int64_t attempt);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ds
