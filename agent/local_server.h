// The agent's server for its workers, on a Unix socket in a private folder: one link a worker, and the launcher's
// store.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace deepshard::v1 {
class AgentToWorker;
class WorkerMessage;
}  // namespace deepshard::v1

namespace ds {

class LauncherLink;

/// A worker of one attempt.
struct WorkerKey {
  int64_t attempt = 0;
  uint32_t rank = 0;
  auto operator<=>(const WorkerKey&) const = default;
};

class LocalServer {
 public:
  struct Callbacks {
    std::function<void(WorkerKey, deepshard::v1::WorkerMessage&&)> on_message;  ///< any thread; return at once
    std::function<void(WorkerKey)> on_closed;                                   ///< after the link's last message
  };
  /// Store calls are passed on to `launcher`, which must outlive the server.
  LocalServer(LauncherLink& launcher, std::string job_id, Callbacks callbacks);
  ~LocalServer();

  const std::string& socket_path() const;

  /// Dropped when the worker has no link.
  void Send(WorkerKey worker, deepshard::v1::AgentToWorker message);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ds
