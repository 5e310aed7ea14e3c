// What agents that are children of the launcher write to standard error: it goes on to ours, and the reason that one
// gives for its end is kept.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <thread>

namespace ds {

class AgentErrors {
 public:
  AgentErrors();
  ~AgentErrors();
  AgentErrors(const AgentErrors&) = delete;
  AgentErrors& operator=(const AgentErrors&) = delete;

  /// The descriptor that is to be `node`'s standard error; the caller closes it. Throws SystemError.
  int Open(uint32_t node);

  /// After its end: why it ended, where its last line tells ("error: ds-agent: WHY"); else empty. What it wrote before
  /// is on our standard error then.
  std::string Reason(uint32_t node);

 private:
  struct Stream {
    int fd = -1;
    std::string rest;  ///< no whole line yet
    std::string last;  ///< the newest whole line
  };
  void Serve();
  void Read(Stream& stream);  ///< what is there; with the mutex held

  std::mutex mutex_;
  std::map<uint32_t, Stream> streams_;
  int wake_fd_ = -1;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace ds
