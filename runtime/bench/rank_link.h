// What ds-bench and the ranks that it starts say to each other, over a pair of connected sockets: messages of a few
// strings. A rank's rendezvous store goes the same way.
#pragma once

#include <chrono>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/comm/store.h"

namespace ds {

using RankMessage = std::vector<std::string>;

/// Sends a whole message. False: the other end is gone.
bool SendRankMessage(int fd, const RankMessage& message);
/// Waits for a whole message. Nothing: the other end is gone, or what came is no message.
std::optional<RankMessage> ReceiveRankMessage(int fd);

/// A rank's end of the store that ds-bench keeps. Used between the commands that come over the same socket, never
/// beside them.
class RankStore : public Store {
 public:
  explicit RankStore(int fd) : fd_(fd) {}
  void Set(const std::string& key, const std::string& value) override;
  std::string Get(const std::string& key, std::chrono::milliseconds timeout) override;

 private:
  const int fd_;
  std::mutex mutex_;
};

}  // namespace ds
