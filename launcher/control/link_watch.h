// Whether the kernels at the other ends of the control connections are there: read off the connections themselves.
//
// A kernel acknowledges what it receives whether or not its processes run. So data that stays unacknowledged tells of a
// cut link, a black hole in either direction or a machine that is gone, and never of a process that is stopped or
// starved; gRPC's own pings, which the process answers, cannot tell these apart.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>

namespace ds {

class LinkWatch {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// The connection of this process whose other end is `peer`, as gRPC writes it: "ipv4:10.0.0.7:41234",
  /// "ipv6:%5Bfd00::7%5D:41234". Any other form (a Unix socket) is not watched.
  void Watch(uint32_t node, const std::string& peer);
  void Forget(uint32_t node) { links_.erase(node); }

  /// Seconds for which data has been on its way without any of it being acknowledged; 0: nothing is on its way, or the
  /// connection is not (or no longer) known. Counted from the first look that saw it so: look several times a second.
  double Unacknowledged(uint32_t node, Time now);

 private:
  struct Link {
    std::string peer;  ///< "10.0.0.7 41234"
    int fd = -1;       ///< gRPC's, looked at again each time; -1: not found
    Time look_again{};
    uint64_t acknowledged = 0;  ///< bytes
    bool waits = false;
    Time waits_since{};
  };
  std::map<uint32_t, Link> links_;
};

}  // namespace ds
