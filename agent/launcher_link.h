// The agent's end of the control plane: it dials the launcher, proves itself and holds one session.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

namespace deepshard::v1 {
class AgentMessage;
class Bootstrap;
class LauncherMessage;
class NodeFacts;
class StoreGetRequest;
class StorePutRequest;
}  // namespace deepshard::v1

namespace ds {

class LauncherLink {
 public:
  struct Callbacks {
    std::function<void(deepshard::v1::LauncherMessage&&)> on_message;  ///< on a thread of its own; return at once
    std::function<void()> on_closed;                                   ///< once, when the session ended
  };
  LauncherLink(const deepshard::v1::Bootstrap& bootstrap, Callbacks callbacks);
  ~LauncherLink();

  /// Connects to the first of the launcher's addresses that answers, and returns it. Throws Error(ExitCode::preflight).
  std::string Connect();

  /// Any thread: ends Connect and Join at once.
  void Abort();

  /// Connects if Connect has not, reports the facts and opens the session. Throws Error(ExitCode::preflight) with the
  /// launcher's reason.
  void Join(const deepshard::v1::NodeFacts& facts);

  /// Any thread; never blocks. Job, node, epoch and sequence are filled in.
  void Send(deepshard::v1::AgentMessage message);

  /// Blocks while more than `bytes` wait to be sent; false when the session ended.
  bool WaitBelow(size_t bytes);

  /// Sends what is left and ends the session, within `patience`.
  void Close(std::chrono::milliseconds patience);

  /// A reply as gRPC codes it; `code` 0 is success.
  struct Reply {
    int code = 0;
    std::string message, value;
  };
  using OnReply = std::function<void(Reply)>;
  /// Passed on to the launcher's store. `on_reply` runs once, on any thread.
  void StorePut(const deepshard::v1::StorePutRequest& request, OnReply on_reply);
  void StoreGet(const deepshard::v1::StoreGetRequest& request, std::chrono::system_clock::time_point deadline,
                OnReply on_reply);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ds
