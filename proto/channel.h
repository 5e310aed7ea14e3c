// gRPC channels and servers as the control plane wants them: bounded messages, keep-alive on both ends, no HTTP proxy.
// Includes gRPC: for .cc files only.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>

namespace ds {

/// PEM text of one end of a mutually authenticated connection.
struct TlsIdentity {
  std::string ca_certificate, certificate, private_key;
};

/// Call once, first thing in main, before any thread: gRPC must not hook fork() (programs here fork and exec at once).
void PrepareGrpc();

/// A channel to `address` whose server must prove that it is `server_name`. A peer that answers no ping for
/// `silence_seconds` is cut off.
std::shared_ptr<grpc::Channel> SecureChannel(const std::string& address, const std::string& server_name,
                                             const TlsIdentity& identity, double silence_seconds);

/// gRPC's name of the Unix socket at `path`, whatever bytes that has.
std::string LocalAddress(const std::string& path);

/// A channel to a Unix socket.
std::shared_ptr<grpc::Channel> LocalChannel(const std::string& socket_path);

/// Server credentials that demand a client certificate of the same authority.
std::shared_ptr<grpc::ServerCredentials> MutualTls(const TlsIdentity& identity);

/// Message bounds and keep-alive of a server.
void SetServerOptions(grpc::ServerBuilder& builder, double silence_seconds);

/// now + seconds, for ClientContext::set_deadline.
inline std::chrono::system_clock::time_point Deadline(double seconds) {
  return std::chrono::system_clock::now() +
         std::chrono::duration_cast<std::chrono::system_clock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace ds
