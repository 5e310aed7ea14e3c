// Dialling the launcher where it has several addresses. Includes gRPC: for .cc files only.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "proto/channel.h"

namespace ds {

struct Dialled {
  std::shared_ptr<grpc::Channel> channel;
  std::string address;  ///< the one that answered, HOST:PORT
};

/// Connects to the first of `addresses` (HOST:PORT, with commas between) whose server answers and proves that it is
/// `server_name`; earlier ones have a start before later ones. Throws Error(ExitCode::preflight) where none does within
/// kCallSeconds, or once `cancelled` is set.
Dialled DialFirst(const std::string& addresses, const std::string& server_name, const TlsIdentity& identity,
                  double silence_seconds, const std::atomic<bool>& cancelled);

}  // namespace ds
