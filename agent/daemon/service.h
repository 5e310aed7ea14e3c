// The daemon's end of the connection to launchers (proto/daemon.proto): who may come in, and what they say as events.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "runtime/site/site.h"

namespace deepshard::v1 {
class DaemonReply;
class DaemonRequest;
}  // namespace deepshard::v1

namespace ds {

class DaemonService {
 public:
  struct Callbacks {
    std::function<void(uint64_t stream, std::string launcher)> on_open;  ///< `launcher`: its address, for people
    std::function<void(uint64_t stream, deepshard::v1::DaemonRequest&&)> on_request;
    std::function<void(uint64_t stream)> on_closed;  ///< once, last
  };                                                 ///< on any thread; must return at once

  /// Listens. Throws RuntimeError naming the address.
  DaemonService(const DaemonConfig& config, const Identity& identity, Callbacks callbacks);
  ~DaemonService();

  uint16_t port() const;

  /// Dropped when the stream is closed.
  void Send(uint64_t stream, deepshard::v1::DaemonReply reply);
  /// After what was sent.
  void Close(uint64_t stream);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ds
