#include "launcher/control_server.h"

#include <atomic>
#include <map>
#include <mutex>
#include <utility>

#include "launcher/rendezvous.h"
#include "proto/channel.h"
#include "proto/deepshard.grpc.pb.h"
#include "proto/hand_over.h"
#include "proto/names.h"
#include "proto/stream.h"
#include "proto/version.h"
#include "runtime/base/error.h"

namespace ds {
namespace {

namespace pb = ::deepshard::v1;
using AgentStream = ServerStream<pb::AgentMessage, pb::LauncherMessage>;

/// A StoreGet that waits: ended by a value, by its deadline or by the end of the attempt, whichever is first.
class WaitingGet final : public grpc::ServerUnaryReactor {
 public:
  WaitingGet(Rendezvous& store, const pb::StoreGetRequest& request, pb::StoreGetReply* reply) : store_(store) {
    uint64_t ticket = store_.Get(request.attempt(), request.key(), [this, reply](std::optional<std::string> value) {
      if (ended_.exchange(true)) return;
      if (value) reply->set_value(*value);
      passed_.Give();
      Finish(value ? grpc::Status::OK : grpc::Status(grpc::StatusCode::ABORTED, "this attempt of the job is over"));
    });
    // OnCancel may have come before the ticket was known; then nobody else ends the call.
    ticket_ = ticket;
    if (cancelled_) EndByCancel();
    passed_.Give();
  }

 private:
  void OnCancel() override {
    passed_.Take();
    cancelled_ = true;
    EndByCancel();
    passed_.Give();
  }
  void EndByCancel() {
    if (store_.Cancel(ticket_) && !ended_.exchange(true)) Finish(grpc::Status::CANCELLED);
  }
  void OnDone() override {
    passed_.Take();
    delete this;
  }

  HandOver passed_;  ///< from the call's method, a value or OnCancel, to OnCancel and OnDone
  Rendezvous& store_;
  std::atomic<uint64_t> ticket_{0};
  std::atomic<bool> cancelled_{false}, ended_{false};
};

}  // namespace

struct ControlServer::Impl final : pb::Control::CallbackService {
  Options options;
  std::string address;
  Rendezvous store;
  std::mutex mutex;
  std::map<uint32_t, std::shared_ptr<pb::NodeFacts>> joined;
  std::map<uint32_t, std::shared_ptr<AgentStream>> sessions;
  bool shutting_down = false;
  HandOver started;  ///< from the constructor to the methods of the service
  std::unique_ptr<grpc::Server> server;

  void Tell(ControlEvent event) {
    {
      std::lock_guard lock(mutex);
      if (shutting_down) return;
    }
    options.on_event(std::move(event));
  }

  /// The node whose certificate the caller holds; options.nodes when it holds none of this job's nodes.
  uint32_t Caller(const grpc::CallbackServerContext& context) const {
    for (const grpc::string_ref& name : context.auth_context()->GetPeerIdentity()) {
      for (uint32_t node = 0; node < options.nodes; ++node) {
        if (std::string(name.data(), name.size()) == NodeName(options.job_id, node)) return node;
      }
    }
    return options.nodes;
  }

  grpc::Status CheckCaller(const grpc::CallbackServerContext& context, const std::string& job_id) const {
    if (Caller(context) == options.nodes) {
      return {grpc::StatusCode::PERMISSION_DENIED, "the caller's certificate names no node of this job"};
    }
    if (job_id != options.job_id) return {grpc::StatusCode::PERMISSION_DENIED, "another job's message"};
    return grpc::Status::OK;
  }

  grpc::ServerUnaryReactor* Join(grpc::CallbackServerContext* context, const pb::JoinRequest* request,
                                 pb::JoinReply*) override {
    started.Take();
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(Admit(*context, *request));
    return reactor;
  }

  grpc::Status Admit(const grpc::CallbackServerContext& context, const pb::JoinRequest& request) {
    grpc::Status status = CheckCaller(context, request.job_id());
    if (!status.ok()) return status;
    if (request.node() != Caller(context)) {
      return {grpc::StatusCode::PERMISSION_DENIED, "the caller's certificate names another node"};
    }
    if (request.protocol() != kProtocolVersion || request.build() != BuildVersion()) {
      std::string text = "ds-agent is build " + request.build() + " (protocol " + std::to_string(request.protocol()) +
                         "), ds-launch is build " + BuildVersion() + " (protocol " + std::to_string(kProtocolVersion) +
                         "): install the same build on every node";
      Tell({ControlEvent::Kind::refused, request.node(), text, nullptr, nullptr});
      return {grpc::StatusCode::FAILED_PRECONDITION, text};
    }
    {
      std::lock_guard lock(mutex);
      if (!joined.emplace(request.node(), std::make_shared<pb::NodeFacts>(request.facts())).second) {
        return {grpc::StatusCode::ALREADY_EXISTS, "this node has joined already"};
      }
    }
    return grpc::Status::OK;
  }

  grpc::ServerBidiReactor<pb::AgentMessage, pb::LauncherMessage>* Session(
      grpc::CallbackServerContext* context) override {
    started.Take();
    std::shared_ptr<AgentStream> session = AgentStream::Make();
    uint32_t node = Caller(*context);
    grpc::Status refusal = grpc::Status::OK;
    std::shared_ptr<pb::NodeFacts> facts;
    {
      std::lock_guard lock(mutex);
      if (auto it = joined.find(node); it != joined.end()) facts = it->second;
      if (!facts) {
        refusal = {grpc::StatusCode::PERMISSION_DENIED, "not a node that has joined"};
      } else if (shutting_down || !sessions.emplace(node, session).second) {
        refusal = {grpc::StatusCode::ALREADY_EXISTS, "this node had its session"};
      }
    }
    if (!refusal.ok()) {
      session->Close(refusal);
      return session.get();
    }
    // Told now, not at Join: whoever hears of the node can send to it.
    Tell({ControlEvent::Kind::joined, node, "", facts, nullptr});
    session->Open([this, node](pb::AgentMessage&& message) { Receive(node, std::move(message)); },
                  [this, node] {
                    Tell({ControlEvent::Kind::closed, node, "", nullptr, nullptr});
                  },
                  /*paced=*/true);
    return session.get();
  }

  void Receive(uint32_t node, pb::AgentMessage&& message) {
    if (message.job_id() != options.job_id || message.node() != node) {
      std::lock_guard lock(mutex);
      sessions.at(node)->Close({grpc::StatusCode::PERMISSION_DENIED, "a message of another job or node"});
      return;
    }
    Tell({ControlEvent::Kind::message, node, "", nullptr, std::make_shared<pb::AgentMessage>(std::move(message))});
  }

  grpc::ServerUnaryReactor* StorePut(grpc::CallbackServerContext* context, const pb::StorePutRequest* request,
                                     pb::StorePutReply*) override {
    started.Take();
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    grpc::Status status = CheckCaller(*context, request->job_id());
    if (status.ok() && !store.Put(request->attempt(), request->key(), request->value())) {
      status = {grpc::StatusCode::ABORTED, "this attempt of the job is over, or the store is full"};
    }
    reactor->Finish(status);
    return reactor;
  }

  grpc::ServerUnaryReactor* StoreGet(grpc::CallbackServerContext* context, const pb::StoreGetRequest* request,
                                     pb::StoreGetReply* reply) override {
    started.Take();
    grpc::Status status = CheckCaller(*context, request->job_id());
    if (status.ok()) return new WaitingGet(store, *request, reply);
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(status);
    return reactor;
  }
};

ControlServer::ControlServer(const Options& options, const JobAuthority& authority) : impl_(std::make_unique<Impl>()) {
  impl_->options = options;
  Credentials own = authority.Issue(LauncherName(options.job_id));
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(options.bind_address + ":0",
                           MutualTls({authority.certificate(), own.certificate, own.private_key}), &port);
  SetServerOptions(builder, options.lease_seconds);
  builder.RegisterService(impl_.get());
  impl_->started.Give();
  impl_->server = builder.BuildAndStart();
  if (!impl_->server || port == 0) throw RuntimeError("cannot listen for agents on " + options.bind_address);
  const std::string& host = options.reach_address.empty() ? options.bind_address : options.reach_address;
  impl_->address = host + ":" + std::to_string(port);
}

ControlServer::~ControlServer() {
  {
    std::lock_guard lock(impl_->mutex);
    impl_->shutting_down = true;
  }
  impl_->store.BeginAttempt(-1);
  impl_->server->Shutdown(Deadline(0.2));
}

const std::string& ControlServer::address() const { return impl_->address; }

void ControlServer::Send(uint32_t node, pb::LauncherMessage message) {
  message.set_job_id(impl_->options.job_id);
  std::lock_guard lock(impl_->mutex);
  auto it = impl_->sessions.find(node);
  if (it != impl_->sessions.end()) it->second->Send(std::move(message));
}

void ControlServer::EndSessions() {
  std::lock_guard lock(impl_->mutex);
  for (auto& [node, session] : impl_->sessions) {
    pb::LauncherMessage end;
    end.set_job_id(impl_->options.job_id);
    end.mutable_end();
    session->Send(std::move(end));
    session->Close();
  }
}

void ControlServer::ReadNext(uint32_t node) {
  std::lock_guard lock(impl_->mutex);
  auto it = impl_->sessions.find(node);
  if (it != impl_->sessions.end()) it->second->ReadNext();
}

void ControlServer::BeginAttempt(int64_t attempt) { impl_->store.BeginAttempt(attempt); }

}  // namespace ds
