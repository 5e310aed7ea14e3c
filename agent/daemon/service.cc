#include "agent/daemon/service.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>

#include "proto/channel.h"
#include "proto/daemon.grpc.pb.h"
#include "proto/front_door.h"
#include "proto/hand_over.h"
#include "proto/stream.h"
#include "runtime/base/error.h"

namespace ds {
namespace {

namespace pb = ::deepshard::v1;
using LauncherStream = ServerStream<pb::DaemonRequest, pb::DaemonReply>;

/// A launcher that answers no ping for so long is gone. Its agent finds that out for itself, by the job's lease.
constexpr double kSilenceSeconds = 30;

}  // namespace

struct DaemonService::Impl final : pb::Daemon::CallbackService {
  Callbacks callbacks;
  std::mutex mutex;
  uint64_t last = 0;
  std::map<uint64_t, std::shared_ptr<LauncherStream>> streams;
  bool shutting_down = false;
  HandOver started;  ///< from the constructor to the methods of the service
  std::unique_ptr<FrontDoor> door;
  std::unique_ptr<grpc::Server> server;

  /// A node's certificate comes from the same authority, and hands over nothing.
  static bool IsLauncher(const grpc::CallbackServerContext& context) {
    const auto names = context.auth_context()->GetPeerIdentity();
    return std::any_of(names.begin(), names.end(), [](const grpc::string_ref& name) {
      return std::string(name.data(), name.size()) == kSiteLauncherName;
    });
  }

  grpc::ServerBidiReactor<pb::DaemonRequest, pb::DaemonReply>* Run(grpc::CallbackServerContext* context) override {
    started.Take();
    std::shared_ptr<LauncherStream> stream = LauncherStream::Make();
    if (!IsLauncher(*context)) {
      stream->Close({grpc::StatusCode::PERMISSION_DENIED, "the caller's certificate is not a launcher's"});
      return stream.get();
    }
    uint64_t id = 0;
    {
      std::lock_guard lock(mutex);
      if (shutting_down) {
        stream->Close({grpc::StatusCode::UNAVAILABLE, "the daemon is ending"});
        return stream.get();
      }
      id = ++last;
      streams[id] = stream;
    }
    callbacks.on_open(id, context->peer());
    stream->Open([this, id](pb::DaemonRequest&& request) { callbacks.on_request(id, std::move(request)); },
                 [this, id] {
                   {
                     std::lock_guard lock(mutex);
                     streams.erase(id);
                   }
                   callbacks.on_closed(id);
                 },
                 /*paced=*/false);
    return stream.get();
  }
};

DaemonService::DaemonService(const DaemonConfig& config, const Identity& identity, Callbacks callbacks)
    : impl_(std::make_unique<Impl>()) {
  impl_->callbacks = std::move(callbacks);
  FrontDoorLimits limits;
  limits.silence_seconds = kSilenceSeconds;
  limits.handshakes = 256;
  try {
    impl_->door = std::make_unique<FrontDoor>(config.listen, config.port, kSiteNodeNames, limits);
  } catch (const std::runtime_error& error) {
    const std::string why = error.what(), port = std::to_string(config.port);
    if (!why.ends_with(std::strerror(EADDRINUSE))) throw RuntimeError(why);
    throw RuntimeError(why + ": another daemon, or another program, has this port (`ss -ltnp 'sport = :" + port +
                       "'` names it); end that one, or write another `port` here and in the launcher's site file");
  }
  grpc::ServerBuilder builder;
  SetServerOptions(builder, kSilenceSeconds);
  impl_->door->Attach(builder, MutualTls({identity.ca_certificate, identity.certificate, identity.private_key}));
  builder.RegisterService(impl_.get());
  impl_->started.Give();
  impl_->server = builder.BuildAndStart();
  if (!impl_->server) throw RuntimeError("cannot serve launchers on " + config.listen);
  impl_->door->Open();
}

DaemonService::~DaemonService() {
  {
    std::lock_guard lock(impl_->mutex);
    impl_->shutting_down = true;
  }
  impl_->door->Close();
  impl_->server->Shutdown(Deadline(0.5));
}

uint16_t DaemonService::port() const { return impl_->door->port(); }

void DaemonService::Send(uint64_t stream, pb::DaemonReply reply) {
  std::lock_guard lock(impl_->mutex);
  if (auto it = impl_->streams.find(stream); it != impl_->streams.end()) it->second->Send(std::move(reply));
}

void DaemonService::Close(uint64_t stream) {
  std::lock_guard lock(impl_->mutex);
  if (auto it = impl_->streams.find(stream); it != impl_->streams.end()) it->second->Close();
}

}  // namespace ds
