// The door of a server that strangers can reach: nobody gets a place in the server by connecting alone.
//
// A connection waits here, outside of gRPC, until it has sent a TLS ClientHello that asks for this server by name; gRPC
// then goes on with mutual TLS. Who stays silent, sends a byte a second, speaks another protocol or asks for another
// name is dropped, and costs a descriptor for some seconds at most. Includes gRPC: for .cc files only.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "proto/client_hello.h"
#include "proto/front_door_limits.h"

namespace ds {

class FrontDoor {
 public:
  /// Listens on `host` (a name or address, IPv6 in brackets) and `port` (0: the system's choice); lets those in who ask
  /// for `server_name` (LookAtClientHello). Throws std::runtime_error naming the address.
  FrontDoor(const std::string& host, uint16_t port, std::string server_name, FrontDoorLimits limits);
  ~FrontDoor();

  uint16_t port() const;

  /// Before BuildAndStart.
  void Attach(grpc::ServerBuilder& builder, std::shared_ptr<grpc::ServerCredentials> credentials);

  /// After BuildAndStart: begins to let in. Call Close before the server shuts down.
  void Open();

  /// Drops who waits and listens no more. Idempotent.
  void Close();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ds
