#include "agent/launcher_link.h"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <set>
#include <utility>

#include "agent/dial.h"
#include "proto/channel.h"
#include "proto/deepshard.grpc.pb.h"
#include "proto/hand_over.h"
#include "proto/names.h"
#include "proto/repair_strings.h"
#include "proto/stream.h"
#include "proto/version.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/base/secret.h"

namespace ds {
namespace {

namespace pb = ::deepshard::v1;
using Session = ClientStream<pb::LauncherMessage, pb::AgentMessage>;

/// Calls on their way, so that closing the link ends them all.
class Calls {
 public:
  /// False once closed.
  bool Add(grpc::ClientContext* context) {
    std::lock_guard lock(mutex_);
    if (closed_) return false;
    contexts_.insert(context);
    return true;
  }
  void Cancel() {
    std::lock_guard lock(mutex_);
    for (grpc::ClientContext* context : contexts_) context->TryCancel();
  }
  void Remove(grpc::ClientContext* context) {
    std::lock_guard lock(mutex_);
    contexts_.erase(context);
    if (contexts_.empty()) empty_.notify_all();
  }
  /// Cancels all and waits until their callbacks ran.
  void Close() {
    std::unique_lock lock(mutex_);
    closed_ = true;
    for (grpc::ClientContext* context : contexts_) context->TryCancel();
    empty_.wait(lock, [&] { return contexts_.empty(); });
  }

 private:
  std::mutex mutex_;
  std::condition_variable empty_;
  std::set<grpc::ClientContext*> contexts_;
  bool closed_ = false;
};

/// A store call on its way; deletes itself at its end.
template <class Request, class ReplyMessage>
class StoreCall final : public grpc::ClientUnaryReactor {
 public:
  using OnEnd = std::function<void(const grpc::Status&, const ReplyMessage&)>;
  StoreCall(Calls& calls, const Request& r, std::chrono::system_clock::time_point deadline, OnEnd on_end)
      : request(r), calls_(calls), on_end_(std::move(on_end)) {
    context.set_deadline(deadline);
  }

  /// After the method of the stub. The call may have ended, and be deleted, before this returns.
  void Start() {
    started_.Give();
    StartCall();
  }

  grpc::ClientContext context;
  Request request;
  ReplyMessage reply;

 private:
  void OnDone(const grpc::Status& status) override {
    started_.Take();
    on_end_(status, reply);
    calls_.Remove(&context);
    delete this;
  }

  HandOver started_;
  Calls& calls_;
  OnEnd on_end_;
};

}  // namespace

struct LauncherLink::Impl {
  pb::Bootstrap bootstrap;
  Callbacks callbacks;
  TlsIdentity identity;
  std::atomic<bool> aborted{false};
  std::string address;
  std::unique_ptr<pb::Control::Stub> stub;
  std::mutex sending;     ///< of `sent`: messages leave in the order of their numbers
  uint64_t sent = 0;      ///< sequence of the last message
  uint64_t received = 0;  ///< the reader's
  std::unique_ptr<Session> session;
  Calls calls;

  /// A message that is not the next one of this job and epoch ends the session: it was meant for somebody else.
  void Receive(pb::LauncherMessage&& message) {
    if (broken) return;
    if (message.job_id() == bootstrap.job_id() && message.epoch() == bootstrap.epoch() &&
        message.sequence() == received + 1) {
      ++received;
      return callbacks.on_message(std::move(message));
    }
    broken = true;
    LogWarning("a message of the launcher is refused: job " + message.job_id() + ", epoch " +
               std::to_string(message.epoch()) + ", number " + std::to_string(message.sequence()) + "; expected job " +
               bootstrap.job_id() + ", epoch " + std::to_string(bootstrap.epoch()) + ", number " +
               std::to_string(received + 1));
    context->TryCancel();
  }
  bool broken = false;                     ///< the reader's
  grpc::ClientContext* context = nullptr;  ///< the session's
};

LauncherLink::LauncherLink(const pb::Bootstrap& bootstrap, Callbacks callbacks) : impl_(std::make_unique<Impl>()) {
  impl_->bootstrap = bootstrap;
  impl_->callbacks = std::move(callbacks);
  TlsIdentity identity{bootstrap.ca_certificate(), bootstrap.certificate(), bootstrap.private_key()};
  impl_->identity = identity;
  Wipe(identity.private_key);
  Wipe(*impl_->bootstrap.mutable_private_key());
}

LauncherLink::~LauncherLink() { Close(std::chrono::milliseconds(0)); }

std::string LauncherLink::Connect() {
  const pb::Bootstrap& own = impl_->bootstrap;
  Dialled dialled = DialFirst(own.launcher_address(), LauncherName(own.job_id()), impl_->identity, own.lease_seconds(),
                              impl_->aborted);
  Wipe(impl_->identity.private_key);  // gRPC and OpenSSL hold the key that they use
  impl_->stub = pb::Control::NewStub(dialled.channel);
  return impl_->address = dialled.address;
}

void LauncherLink::Abort() {
  impl_->aborted = true;
  impl_->calls.Cancel();
}

void LauncherLink::Join(const pb::NodeFacts& facts) {
  if (!impl_->stub) Connect();
  const pb::Bootstrap& own = impl_->bootstrap;
  pb::JoinRequest request;
  request.set_job_id(own.job_id());
  request.set_node(own.node());
  request.set_protocol(kProtocolVersion);
  request.set_build(BuildVersion());
  request.set_epoch(own.epoch());
  *request.mutable_facts() = facts;
  RepairStrings(request);  // paths and what files of the system say may be any bytes
  pb::JoinReply reply;
  grpc::ClientContext context;
  context.set_deadline(Deadline(kCallSeconds));
  context.set_wait_for_ready(true);
  if (!impl_->calls.Add(&context) || impl_->aborted) context.TryCancel();
  grpc::Status status = impl_->stub->Join(&context, request, &reply);
  impl_->calls.Remove(&context);
  if (!status.ok()) {
    throw Error(ExitCode::preflight, "the launcher at " + impl_->address + " did not let this agent in: " +
                                         (status.error_message().empty()
                                              ? "gRPC status " + std::to_string(status.error_code()) + ", no reason"
                                              : status.error_message()));
  }
  auto session_context = std::make_unique<grpc::ClientContext>();
  impl_->context = session_context.get();
  impl_->session = std::make_unique<Session>(
      std::move(session_context), impl_->stub->Session(impl_->context),
      [impl = impl_.get()](pb::LauncherMessage&& m) { impl->Receive(std::move(m)); }, impl_->callbacks.on_closed);
  pb::AgentMessage hello;
  hello.mutable_hello();
  Send(std::move(hello));
}

void LauncherLink::Send(pb::AgentMessage message) {
  message.set_job_id(impl_->bootstrap.job_id());
  message.set_node(impl_->bootstrap.node());
  message.set_epoch(impl_->bootstrap.epoch());
  RepairStrings(message);
  std::lock_guard lock(impl_->sending);
  message.set_sequence(++impl_->sent);
  impl_->session->Send(std::move(message));
}

bool LauncherLink::WaitBelow(size_t bytes) { return impl_->session->WaitBelow(bytes); }

void LauncherLink::Close(std::chrono::milliseconds patience) {
  if (impl_->session) impl_->session->Shutdown(patience);
  impl_->calls.Close();
}

void LauncherLink::StorePut(const pb::StorePutRequest& request, OnReply on_reply) {
  auto call = std::make_unique<StoreCall<pb::StorePutRequest, pb::StorePutReply>>(
      impl_->calls, request, Deadline(kCallSeconds), [on_reply](const grpc::Status& status, const pb::StorePutReply&) {
        on_reply({status.error_code(), status.error_message(), ""});
      });
  if (!impl_->calls.Add(&call->context)) return on_reply({grpc::StatusCode::ABORTED, "the job is over", ""});
  call->request.set_epoch(impl_->bootstrap.epoch());
  impl_->stub->async()->StorePut(&call->context, &call->request, &call->reply, call.get());
  call.release()->Start();
}

void LauncherLink::StoreGet(const pb::StoreGetRequest& request, std::chrono::system_clock::time_point deadline,
                            OnReply on_reply) {
  auto call = std::make_unique<StoreCall<pb::StoreGetRequest, pb::StoreGetReply>>(
      impl_->calls, request, deadline, [on_reply](const grpc::Status& status, const pb::StoreGetReply& reply) {
        on_reply({status.error_code(), status.error_message(), reply.value()});
      });
  if (!impl_->calls.Add(&call->context)) return on_reply({grpc::StatusCode::ABORTED, "the job is over", ""});
  call->request.set_epoch(impl_->bootstrap.epoch());
  impl_->stub->async()->StoreGet(&call->context, &call->request, &call->reply, call.get());
  call.release()->Start();
}

}  // namespace ds
