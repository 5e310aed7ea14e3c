#include "runtime/worker/agent_link.h"

#include <unistd.h>

#include <atomic>
#include <fstream>
#include <future>
#include <utility>

#include "proto/channel.h"
#include "proto/deepshard.grpc.pb.h"
#include "proto/stream.h"
#include "proto/version.h"
#include "runtime/base/clock.h"
#include "runtime/base/error.h"
#include "runtime/base/stacks.h"
#include "runtime/base/text.h"
#include "runtime/worker/messages.h"

namespace ds {
namespace {

namespace pb = ::deepshard::v1;
using Stream = ClientStream<pb::AgentToWorker, pb::WorkerMessage>;

constexpr size_t kMaxStackBytes = 256 << 10;

int64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  int64_t size = 0, resident = 0;
  file >> size >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

}  // namespace

struct AgentLink::Impl {
  int rank = 0;
  int64_t attempt = 1;
  Callbacks callbacks;
  std::promise<pb::Assignment> assigned;
  std::atomic<bool> has_assignment{false}, closing{false};
  WorkerAssignment assignment;
  std::unique_ptr<pb::Local::Stub> stub;
  std::unique_ptr<Stream> stream;

  void Receive(pb::AgentToWorker&& message) {
    if (message.has_assignment() && !has_assignment.exchange(true)) assigned.set_value(message.assignment());
    if (message.has_stop()) callbacks.on_stop(message.stop().checkpoint());
    if (message.has_ask_stacks()) SendStacks();
  }

  /// On the reader's thread: the others may be what hangs.
  void SendStacks() {
    pb::WorkerMessage answer;
    answer.mutable_stacks()->set_action(CurrentActivity().action);
    answer.mutable_stacks()->set_text(AllStacks().substr(0, kMaxStackBytes));
    Send(std::move(answer));
  }

  void Lost() {
    if (!has_assignment.exchange(true)) {
      assigned.set_exception(
          std::make_exception_ptr(RuntimeError("the agent ended the link before it gave this worker its assignment")));
    } else if (!closing) {
      callbacks.on_lost();
    }
  }

  void Send(pb::WorkerMessage&& message) {
    message.set_rank(static_cast<uint32_t>(rank));
    message.set_attempt(attempt);
    stream->Send(std::move(message));
  }
};

AgentLink::AgentLink(const std::string& socket_path, int rank, int64_t attempt, Callbacks callbacks)
    : impl_(std::make_unique<Impl>()) {
  impl_->rank = rank;
  impl_->attempt = attempt;
  impl_->callbacks = std::move(callbacks);
  impl_->stub = pb::Local::NewStub(LocalChannel(socket_path));
  auto context = std::make_unique<grpc::ClientContext>();
  auto* raw = context.get();
  impl_->stream = std::make_unique<Stream>(
      std::move(context), impl_->stub->Link(raw),
      [this](pb::AgentToWorker&& message) { impl_->Receive(std::move(message)); }, [this] { impl_->Lost(); });
  pb::WorkerMessage hello;
  hello.mutable_hello();
  impl_->Send(std::move(hello));
  std::future<pb::Assignment> assignment = impl_->assigned.get_future();
  if (assignment.wait_for(std::chrono::seconds(kCallSeconds)) != std::future_status::ready) {
    impl_->closing = true;  // an assignment that comes now is no link that was lost
    throw RuntimeError("the agent at " + socket_path + " gave this worker no assignment within " +
                       std::to_string(kCallSeconds) + " s");
  }
  impl_->assignment = FromMessage(assignment.get());
}

AgentLink::~AgentLink() { Close(); }

const WorkerAssignment& AgentLink::assignment() const { return impl_->assignment; }

void AgentLink::SendStatus(const WorkerStatus& status, const std::vector<StepRecord>& steps) {
  pb::WorkerMessage message;
  pb::WorkerHealth* health = message.mutable_batch()->mutable_health();
  health->set_state(status.state);
  health->set_step(status.step);
  health->set_since_progress_seconds(status.since_progress_seconds);
  health->set_memory(ResidentBytes());
  health->set_tokens_per_second(status.tokens_per_second);
  health->set_comm_exposed_ms(status.comm_exposed_ms);
  health->set_action(status.activity.action);
  if (status.activity.index) health->set_action_index(*status.activity.index);
  health->set_waits(status.activity.waits);
  for (const StepRecord& record : steps) Fill(record, *message.mutable_batch()->add_steps());
  impl_->Send(std::move(message));
}

void AgentLink::SendEvent(const std::string& kind, const std::string& text) {
  pb::WorkerMessage message;
  pb::Event* event = message.mutable_event();
  event->set_unix_ns(UnixNanoseconds());
  event->set_rank(impl_->rank);
  event->set_kind(kind);
  event->set_message(RepairUtf8(text));
  impl_->Send(std::move(message));
}

void AgentLink::SendFailure(const std::string& text, bool victim, const std::string& kind, int64_t found_unix_ns) {
  pb::WorkerMessage message;
  message.mutable_failure()->set_message(RepairUtf8(text));
  message.mutable_failure()->set_victim(victim);
  message.mutable_failure()->set_kind(kind);
  message.mutable_failure()->set_found_unix_ns(found_unix_ns);
  impl_->Send(std::move(message));
}

void AgentLink::SendResult(const TrainResult& result, int stop_signal) {
  pb::WorkerMessage message;
  Fill(result, *message.mutable_result());
  message.mutable_result()->set_stop_signal(stop_signal);
  impl_->Send(std::move(message));
}

void AgentLink::Close() {
  if (impl_->closing.exchange(true)) return;
  impl_->stream->Shutdown(std::chrono::seconds(5));
}

void AgentLink::Set(const std::string& key, const std::string& value) {
  pb::StorePutRequest request;
  request.set_attempt(impl_->attempt);
  request.set_key(key);
  request.set_value(value);
  pb::StorePutReply reply;
  grpc::ClientContext context;
  context.set_deadline(Deadline(kCallSeconds));
  grpc::Status status = impl_->stub->StorePut(&context, request, &reply);
  if (!status.ok()) throw RuntimeError("rendezvous: cannot leave " + key + ": " + status.error_message());
}

std::string AgentLink::Get(const std::string& key, std::chrono::milliseconds timeout) {
  const WaitsForPeers waits;
  pb::StoreGetRequest request;
  request.set_attempt(impl_->attempt);
  request.set_key(key);
  pb::StoreGetReply reply;
  grpc::ClientContext context;
  context.set_deadline(Deadline(std::chrono::duration<double>(timeout).count()));
  grpc::Status status = impl_->stub->StoreGet(&context, request, &reply);
  if (status.ok()) return reply.value();
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    throw RuntimeError("rendezvous: nobody left " + key + " within " +
                       DurationText(static_cast<double>(timeout.count()) * 1e-3));
  }
  throw RuntimeError("rendezvous: cannot get " + key + ": " + status.error_message());
}

}  // namespace ds
