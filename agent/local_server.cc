#include "agent/local_server.h"

#include <map>
#include <mutex>
#include <utility>

#include "agent/launcher_link.h"
#include "proto/channel.h"
#include "proto/deepshard.grpc.pb.h"
#include "proto/hand_over.h"
#include "proto/stream.h"
#include "runtime/base/error.h"
#include "runtime/base/failpoint.h"
#include "runtime/base/socket.h"

namespace ds {
namespace {

namespace pb = ::deepshard::v1;
using WorkerStream = ServerStream<pb::WorkerMessage, pb::AgentToWorker>;

}  // namespace

struct LocalServer::Impl final : pb::Local::CallbackService {
  Impl(LauncherLink& l, std::string job, Callbacks c) : launcher(l), job_id(std::move(job)), callbacks(std::move(c)) {}

  LauncherLink& launcher;
  std::string job_id;
  Callbacks callbacks;
  SocketFolder folder;
  std::string path;
  std::mutex mutex;
  std::map<WorkerKey, std::shared_ptr<WorkerStream>> links;
  HandOver started;  ///< from the constructor to the methods of the service
  std::unique_ptr<grpc::Server> server;

  grpc::ServerBidiReactor<pb::WorkerMessage, pb::AgentToWorker>* Link(grpc::CallbackServerContext*) override {
    started.Take();
    std::shared_ptr<WorkerStream> link = WorkerStream::Make();
    auto key = std::make_shared<WorkerKey>();  // rank and attempt, once its first message told
    link->Open([this, key, weak = std::weak_ptr(link)](
                   pb::WorkerMessage&& message) { Receive(*key, weak.lock(), std::move(message)); },
               [this, key] {
                 if (key->attempt == 0) return;
                 {
                   std::lock_guard lock(mutex);
                   links.erase(*key);
                 }
                 callbacks.on_closed(*key);
               },
               /*paced=*/false);
    return link.get();
  }

  void Receive(WorkerKey& key, const std::shared_ptr<WorkerStream>& link, pb::WorkerMessage&& message) {
    WorkerKey told{message.attempt(), message.rank()};
    if (key.attempt == 0) {
      std::lock_guard lock(mutex);
      if (!message.has_hello() || told.attempt < 1 || !links.emplace(told, link).second) {
        link->Close({grpc::StatusCode::INVALID_ARGUMENT, "not a worker's first message, or its second link"});
        return;
      }
      key = told;
    } else if (key != told) {
      link->Close({grpc::StatusCode::INVALID_ARGUMENT, "a message of another rank or attempt"});
      return;
    }
    callbacks.on_message(key, std::move(message));
  }

  grpc::ServerUnaryReactor* StorePut(grpc::CallbackServerContext* context, const pb::StorePutRequest* request,
                                     pb::StorePutReply*) override {
    started.Take();
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    pb::StorePutRequest passed = *request;
    passed.set_job_id(job_id);
    launcher.StorePut(passed, [reactor](LauncherLink::Reply reply) {
      reactor->Finish({static_cast<grpc::StatusCode>(reply.code), reply.message});
    });
    return reactor;
  }

  grpc::ServerUnaryReactor* StoreGet(grpc::CallbackServerContext* context, const pb::StoreGetRequest* request,
                                     pb::StoreGetReply* answer) override {
    started.Take();
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    pb::StoreGetRequest passed = *request;
    passed.set_job_id(job_id);
    launcher.StoreGet(passed, context->deadline(), [reactor, answer](LauncherLink::Reply reply) {
      answer->set_value(reply.value);
      reactor->Finish({static_cast<grpc::StatusCode>(reply.code), reply.message});
    });
    return reactor;
  }
};

LocalServer::LocalServer(LauncherLink& launcher, std::string job_id, Callbacks callbacks)
    : impl_(std::make_unique<Impl>(launcher, std::move(job_id), std::move(callbacks))) {
  impl_->path = (impl_->folder.path() / "socket").string();
  grpc::ServerBuilder builder;
  builder.AddListeningPort(LocalAddress(impl_->path), grpc::InsecureServerCredentials());
  SetServerOptions(builder, 60);
  builder.RegisterService(impl_.get());
  impl_->started.Give();
  impl_->server = builder.BuildAndStart();
  if (!impl_->server) throw RuntimeError("cannot listen for workers on " + impl_->path);
}

LocalServer::~LocalServer() {
  Failpoint("local.shutdown");
  impl_->server->Shutdown(Deadline(0.1));
}

const std::string& LocalServer::socket_path() const { return impl_->path; }

void LocalServer::Send(WorkerKey worker, pb::AgentToWorker message) {
  std::lock_guard lock(impl_->mutex);
  auto it = impl_->links.find(worker);
  if (it != impl_->links.end()) it->second->Send(std::move(message));
}

}  // namespace ds
