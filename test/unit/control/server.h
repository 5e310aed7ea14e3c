// A launcher's server, and agents that call it, as tests of the control plane need them.
#pragma once

#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <string>

#include "agent/launcher_link.h"
#include "launcher/control/control_server.h"
#include "launcher/control/credentials.h"
#include "proto/channel.h"
#include "proto/deepshard.grpc.pb.h"
#include "proto/hand_over.h"
#include "proto/names.h"
#include "proto/version.h"
#include "runtime/base/queue.h"

namespace ds {

namespace pb = ::deepshard::v1;
inline constexpr char kJob[] = "0123456789abcdef";
inline constexpr double kPatience = 60;  ///< seconds for what is to happen: long, so that a busy machine fails no test

struct Server {
  JobAuthority authority;
  Queue<ControlEvent> events;
  ControlServer server;
  explicit Server(FrontDoorLimits limits = {})
      : server({kJob, "127.0.0.1", "", 2, 30, [this](ControlEvent e) { events.Push(std::move(e)); }, limits},
               authority) {}

  pb::Bootstrap BootstrapOf(uint32_t node) const { return BootstrapBy(authority, authority, node); }

  /// What an agent would hold whose certificate `issuer` made and who trusts `trusted`.
  pb::Bootstrap BootstrapBy(const JobAuthority& issuer, const JobAuthority& trusted, uint32_t node) const {
    Credentials credentials = issuer.Issue(NodeName(kJob, node));
    pb::Bootstrap bootstrap;
    bootstrap.set_job_id(kJob);
    bootstrap.set_node(node);
    bootstrap.set_epoch(1);
    bootstrap.set_launcher_address(server.address());
    bootstrap.set_ca_certificate(trusted.certificate());
    bootstrap.set_certificate(credentials.certificate);
    bootstrap.set_private_key(credentials.private_key);
    bootstrap.set_lease_seconds(30);
    return bootstrap;
  }

  std::optional<ControlEvent> Next(double seconds = kPatience) {
    return events.PopUntil(std::chrono::steady_clock::now() +
                           std::chrono::milliseconds(static_cast<int>(seconds * 1e3)));
  }
};

inline std::unique_ptr<pb::Control::Stub> StubOf(const pb::Bootstrap& bootstrap, const std::string& server_name) {
  TlsIdentity identity{bootstrap.ca_certificate(), bootstrap.certificate(), bootstrap.private_key()};
  return pb::Control::NewStub(SecureChannel(bootstrap.launcher_address(), server_name, identity, 30));
}

inline pb::JoinRequest RequestOf(uint32_t node) {
  pb::JoinRequest request;
  request.set_job_id(kJob);
  request.set_epoch(1);
  request.set_node(node);
  request.set_protocol(kProtocolVersion);
  request.set_build(BuildVersion());
  return request;
}

inline grpc::Status Join(pb::Control::Stub& stub, const pb::JoinRequest& request) {
  grpc::ClientContext context;
  context.set_deadline(Deadline(kPatience));
  pb::JoinReply reply;
  return stub.Join(&context, request, &reply);
}

/// A call whose end a test waits for.
struct PendingCall final : grpc::ClientUnaryReactor {
  HandOver started;
  std::promise<grpc::Status> ended;
  void OnDone(const grpc::Status& status) override {
    started.Take();
    ended.set_value(status);
  }
};

}  // namespace ds
