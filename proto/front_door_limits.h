// What strangers at a server's door may cost. Apart from front_door.h, for headers: that one includes gRPC.
#pragma once

#include <cstddef>

namespace ds {

struct FrontDoorLimits {
  size_t waiting = 256;           ///< connections that have not said whom they want; one more: the crowd's oldest goes
  double hello_seconds = 10;      ///< a ClientHello must be whole by then
  size_t handshakes = 1024;       ///< let in within handshake_seconds; more have to wait
  double handshake_seconds = 10;  ///< for TLS and HTTP/2 to be agreed on
  double silence_seconds = 30;    ///< what was sent and is not acknowledged for so long ends a connection
};

}  // namespace ds
