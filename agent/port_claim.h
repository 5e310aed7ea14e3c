// A TCP port of this node for a program's rank 0 (MASTER_PORT), kept from others as long as it can be.
//
// It lies outside the range that the kernel gives to outgoing connections. Until workers start, a socket is bound to
// it: whoever looks for a free port sees that it is not. A program may want the port without SO_REUSEADDR, so that
// socket must go then; agents of other jobs go on keeping off by the claim, an abstract Unix socket named for the port,
// which lives as long as this object and disappears with the process, however it ends. What remains: a program that is
// no job of ours and takes this very port between the start of the workers and rank 0's bind.
#pragma once

#include <cstdint>

namespace ds {

class PortClaim {
 public:
  PortClaim();  ///< throws where not one port of the range is free
  ~PortClaim();
  PortClaim(const PortClaim&) = delete;
  PortClaim& operator=(const PortClaim&) = delete;

  uint16_t port() const { return port_; }

  /// From here on the port can be bound. The claim stays.
  void LetListen();

 private:
  bool Take(uint16_t port);

  int claim_ = -1, held_ = -1;
  uint16_t port_ = 0;
};

}  // namespace ds
