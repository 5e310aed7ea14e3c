#include "launcher/control/control_server.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <stdexcept>
#include <utility>
#include <vector>

#include "launcher/control/rendezvous.h"
#include "proto/channel.h"
#include "proto/deepshard.grpc.pb.h"
#include "proto/front_door.h"
#include "proto/hand_over.h"
#include "proto/names.h"
#include "proto/stream.h"
#include "proto/version.h"
#include "runtime/base/error.h"
#include "runtime/base/failpoint.h"

namespace ds {
namespace {

namespace pb = ::deepshard::v1;
using AgentStream = ServerStream<pb::AgentMessage, pb::LauncherMessage>;

/// A StoreGet that waits: ended by a value, by its deadline or by the end of the attempt, whichever is first.
class WaitingGet final : public grpc::ServerUnaryReactor {
 public:
  /// `entitled`: asked when the value is there; whether the caller still speaks for its node.
  WaitingGet(Rendezvous& store, const pb::StoreGetRequest& request, pb::StoreGetReply* reply,
             std::function<bool()> entitled)
      : store_(store) {
    auto answer = [this, reply, entitled = std::move(entitled)](std::optional<std::string> value) {
      if (ended_.exchange(true)) return;
      grpc::Status status = grpc::Status::OK;
      if (!value) {
        status = {grpc::StatusCode::ABORTED, "this attempt of the job is over"};
      } else if (!entitled()) {
        status = {grpc::StatusCode::PERMISSION_DENIED, "this node was declared lost"};
      } else {
        reply->set_value(*value);
      }
      passed_.Give();
      Finish(status);
    };
    uint64_t ticket = store_.Get(request.attempt(), request.key(), std::move(answer));
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

/// What is known of a node's agent, of its present epoch.
struct Node {
  uint64_t epoch = 1;
  std::shared_ptr<pb::NodeFacts> facts;  ///< null: it has not joined
  std::shared_ptr<AgentStream> session;  ///< null: it had none yet
  uint64_t sent = 0, received = 0;       ///< sequences of the last messages
};

}  // namespace

struct ControlServer::Impl final : pb::Control::CallbackService {
  Options options;
  std::string address;
  Rendezvous store;
  std::mutex mutex;
  std::vector<Node> nodes;
  std::map<std::string, uint32_t> names;    ///< certificate name -> node
  std::map<std::string, uint32_t> outcast;  ///< names of agents that were given up
  bool shutting_down = false;
  HandOver started;  ///< from the constructor to the methods of the service
  std::unique_ptr<FrontDoor> door;
  std::unique_ptr<grpc::Server> server;

  void Tell(ControlEvent event) {
    {
      std::lock_guard lock(mutex);
      if (shutting_down) return;
    }
    options.on_event(std::move(event));
  }

  /// Who calls, by the name in its certificate.
  struct Peer {
    uint32_t node = 0;
    grpc::Status status = grpc::Status::OK;  ///< otherwise why it has no say
  };

  /// With the mutex held.
  Peer Caller(const grpc::CallbackServerContext& context) const {
    for (const grpc::string_ref& text : context.auth_context()->GetPeerIdentity()) {
      const std::string name(text.data(), text.size());
      if (auto it = names.find(name); it != names.end()) return {it->second, grpc::Status::OK};
      if (auto it = outcast.find(name); it != outcast.end()) {
        return {it->second,
                {grpc::StatusCode::PERMISSION_DENIED,
                 "node " + std::to_string(it->second) +
                     " was declared lost: its agent of before cannot act for the job again"}};
      }
    }
    return {0, {grpc::StatusCode::PERMISSION_DENIED, "the caller's certificate names no node of this job"}};
  }

  /// The same, of a message that says what it belongs to.
  Peer Caller(const grpc::CallbackServerContext& context, const std::string& job_id, uint64_t epoch) {
    std::lock_guard lock(mutex);
    Peer peer = Caller(context);
    if (!peer.status.ok()) return peer;
    if (job_id != options.job_id) peer.status = {grpc::StatusCode::PERMISSION_DENIED, "another job's message"};
    if (epoch != nodes[peer.node].epoch) {
      peer.status = {grpc::StatusCode::PERMISSION_DENIED,
                     "a message of epoch " + std::to_string(epoch) + ", not " + std::to_string(nodes[peer.node].epoch)};
    }
    return peer;
  }

  grpc::ServerUnaryReactor* Join(grpc::CallbackServerContext* context, const pb::JoinRequest* request,
                                 pb::JoinReply*) override {
    started.Take();
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(Admit(*context, *request));
    return reactor;
  }

  grpc::Status Admit(const grpc::CallbackServerContext& context, const pb::JoinRequest& request) {
    const Peer peer = Caller(context, request.job_id(), request.epoch());
    if (!peer.status.ok()) return peer.status;
    if (request.node() != peer.node) {
      return {grpc::StatusCode::PERMISSION_DENIED, "the caller's certificate names another node"};
    }
    if (request.protocol() != kProtocolVersion || request.build() != BuildVersion()) {
      std::string text = "ds-agent is build " + request.build() + " (protocol " + std::to_string(request.protocol()) +
                         "), ds-launch is build " + BuildVersion() + " (protocol " + std::to_string(kProtocolVersion) +
                         "): install the same build on every node";
      Tell({ControlEvent::Kind::refused, request.node(), text, nullptr, nullptr, request.epoch()});
      return {grpc::StatusCode::FAILED_PRECONDITION, text};
    }
    {
      std::lock_guard lock(mutex);
      Node& node = nodes[request.node()];
      if (node.facts) return {grpc::StatusCode::ALREADY_EXISTS, "this node has joined already"};
      node.facts = std::make_shared<pb::NodeFacts>(request.facts());
    }
    return grpc::Status::OK;
  }

  grpc::ServerBidiReactor<pb::AgentMessage, pb::LauncherMessage>* Session(
      grpc::CallbackServerContext* context) override {
    started.Take();
    std::shared_ptr<AgentStream> session = AgentStream::Make();
    uint32_t node = 0;
    uint64_t epoch = 0;
    grpc::Status refusal = grpc::Status::OK;
    std::shared_ptr<pb::NodeFacts> facts;
    {
      std::lock_guard lock(mutex);
      const Peer peer = Caller(*context);
      node = peer.node;
      refusal = peer.status;
      if (refusal.ok()) {
        epoch = nodes[node].epoch;
        facts = nodes[node].facts;
        if (!facts) {
          refusal = {grpc::StatusCode::PERMISSION_DENIED, "not a node that has joined"};
        } else if (shutting_down || nodes[node].session) {
          refusal = {grpc::StatusCode::ALREADY_EXISTS, "this node had its session"};
        } else {
          nodes[node].session = session;
        }
      }
    }
    if (!refusal.ok()) {
      session->Close(refusal);
      return session.get();
    }
    // Told now, not at Join: whoever hears of the node can send to it.
    Tell({ControlEvent::Kind::joined, node, context->peer(), facts, nullptr, epoch});
    session->Open([this, node, epoch](pb::AgentMessage&& message) { Receive(node, epoch, std::move(message)); },
                  [this, node, epoch] {
                    if (Current(node, epoch)) Tell({ControlEvent::Kind::closed, node, "", nullptr, nullptr, epoch});
                  },
                  /*paced=*/true);
    return session.get();
  }

  /// Whether an agent of `epoch` still speaks for its node.
  bool Current(uint32_t node, uint64_t epoch) {
    std::lock_guard lock(mutex);
    return nodes[node].epoch == epoch;
  }

  void Receive(uint32_t node, uint64_t epoch, pb::AgentMessage&& message) {
    {
      std::lock_guard lock(mutex);
      Node& from = nodes[node];
      if (from.epoch != epoch) return;  // it was given up meanwhile; its session is being closed
      const bool its_own =
          message.job_id() == options.job_id && message.node() == node && message.epoch() == from.epoch;
      if (!its_own || message.sequence() != from.received + 1) {
        from.session->Close({grpc::StatusCode::PERMISSION_DENIED,
                             "a message of job " + message.job_id() + ", node " + std::to_string(message.node()) +
                                 ", epoch " + std::to_string(message.epoch()) + ", number " +
                                 std::to_string(message.sequence()) + "; expected number " +
                                 std::to_string(from.received + 1) + " of epoch " + std::to_string(from.epoch)});
        return;
      }
      ++from.received;
    }
    auto shared = std::make_shared<pb::AgentMessage>(std::move(message));
    Tell({ControlEvent::Kind::message, node, "", nullptr, std::move(shared), epoch});
  }

  void SendLocked(Node& node, pb::LauncherMessage message) {
    if (!node.session) return;
    message.set_job_id(options.job_id);
    message.set_epoch(node.epoch);
    message.set_sequence(++node.sent);
    node.session->Send(std::move(message));
  }

  grpc::ServerUnaryReactor* StorePut(grpc::CallbackServerContext* context, const pb::StorePutRequest* request,
                                     pb::StorePutReply*) override {
    started.Take();
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    grpc::Status status = Caller(*context, request->job_id(), request->epoch()).status;
    if (status.ok() && !store.Put(request->attempt(), request->key(), request->value())) {
      status = {grpc::StatusCode::ABORTED, "this attempt of the job is over, or the store is full"};
    }
    reactor->Finish(status);
    return reactor;
  }

  grpc::ServerUnaryReactor* StoreGet(grpc::CallbackServerContext* context, const pb::StoreGetRequest* request,
                                     pb::StoreGetReply* reply) override {
    started.Take();
    const Peer peer = Caller(*context, request->job_id(), request->epoch());
    if (peer.status.ok()) {
      return new WaitingGet(store, *request, reply,
                            [this, node = peer.node, epoch = request->epoch()] { return Current(node, epoch); });
    }
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(peer.status);
    return reactor;
  }
};

ControlServer::ControlServer(const Options& options, const JobAuthority& authority) : impl_(std::make_unique<Impl>()) {
  impl_->options = options;
  impl_->nodes.resize(options.nodes);
  for (uint32_t node = 0; node < options.nodes; ++node) impl_->names[NodeName(options.job_id, node)] = node;
  Credentials own = authority.Issue(LauncherName(options.job_id));
  grpc::ServerBuilder builder;
  FrontDoorLimits limits = options.limits;
  limits.silence_seconds = options.lease_seconds;
  limits.handshakes = std::max<size_t>(limits.handshakes, 2 * static_cast<size_t>(options.nodes));
  try {
    impl_->door = std::make_unique<FrontDoor>(options.bind_address, 0, LauncherName(options.job_id), limits);
  } catch (const std::runtime_error& error) {
    throw RuntimeError(std::string("agents have no way in: ") + error.what());
  }
  impl_->door->Attach(builder, MutualTls({authority.certificate(), own.certificate, own.private_key}));
  SetServerOptions(builder, options.lease_seconds);
  builder.RegisterService(impl_.get());
  impl_->started.Give();
  Failpoint("control.start");
  impl_->server = builder.BuildAndStart();
  if (!impl_->server) throw RuntimeError("cannot listen for agents on " + options.bind_address);
  impl_->door->Open();
  const std::string port = ":" + std::to_string(impl_->door->port());
  impl_->address = options.reach_address.empty() ? options.bind_address : options.reach_address;
  for (size_t at = 0; (at = impl_->address.find(',', at)) != std::string::npos; at += port.size() + 1) {
    impl_->address.insert(at, port);
  }
  impl_->address += port;
}

ControlServer::~ControlServer() {
  {
    std::lock_guard lock(impl_->mutex);
    impl_->shutting_down = true;
  }
  impl_->store.BeginAttempt(-1);
  impl_->door->Close();
  Failpoint("control.shutdown");
  impl_->server->Shutdown(Deadline(0.2));
}

const std::string& ControlServer::address() const { return impl_->address; }

void ControlServer::Send(uint32_t node, pb::LauncherMessage message) {
  std::lock_guard lock(impl_->mutex);
  impl_->SendLocked(impl_->nodes[node], std::move(message));
}

void ControlServer::EndSessions() {
  std::lock_guard lock(impl_->mutex);
  for (Node& node : impl_->nodes) {
    if (!node.session) continue;
    pb::LauncherMessage end;
    end.mutable_end();
    impl_->SendLocked(node, std::move(end));
    node.session->Close();
  }
}

void ControlServer::ReadNext(uint32_t node) {
  std::lock_guard lock(impl_->mutex);
  if (const auto& session = impl_->nodes[node].session) session->ReadNext();
}

uint64_t ControlServer::Epoch(uint32_t node) const {
  std::lock_guard lock(impl_->mutex);
  return impl_->nodes[node].epoch;
}

void ControlServer::Fence(uint32_t node) {
  std::lock_guard lock(impl_->mutex);
  const std::string& job_id = impl_->options.job_id;
  Node& fenced = impl_->nodes[node];
  const std::string name = NodeName(job_id, node, fenced.epoch);
  impl_->names.erase(name);
  impl_->outcast[name] = node;
  if (fenced.session) fenced.session->Close({grpc::StatusCode::PERMISSION_DENIED, "this node was declared lost"});
  Node next;
  next.epoch = fenced.epoch + 1;
  impl_->names[NodeName(job_id, node, next.epoch)] = node;
  fenced = std::move(next);
}

void ControlServer::BeginAttempt(int64_t attempt) { impl_->store.BeginAttempt(attempt); }

}  // namespace ds
