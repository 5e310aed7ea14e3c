// Epochs and sequences: who was given up, and what is repeated, late or left out, has no say in a job.
#include <future>

#include "runtime/base/error.h"
#include "test/catch.h"
#include "test/unit/control/proxy.h"
#include "test/unit/control/server.h"

namespace ds {
namespace {

/// An agent's end of a session.
struct TestAgent {
  Queue<pb::LauncherMessage> received;
  std::promise<void> closed;
  LauncherLink link;
  explicit TestAgent(const pb::Bootstrap& bootstrap)
      : link(bootstrap,
             {[this](pb::LauncherMessage&& m) { received.Push(std::move(m)); }, [this] { closed.set_value(); }}) {}
  bool ClosedInTime() {
    return closed.get_future().wait_for(std::chrono::duration<double>(kPatience)) == std::future_status::ready;
  }
};

pb::AgentMessage EventOf(int rank) {
  pb::AgentMessage message;
  message.mutable_event()->set_rank(rank);
  return message;
}

pb::Bootstrap OfEpoch(const Server& server, uint32_t node, uint64_t epoch) {
  pb::Bootstrap bootstrap = server.BootstrapOf(node);
  Credentials credentials = server.authority.Issue(NodeName(kJob, node, epoch));
  bootstrap.set_certificate(credentials.certificate);
  bootstrap.set_private_key(credentials.private_key);
  bootstrap.set_epoch(epoch);
  return bootstrap;
}

LauncherLink::Reply Put(LauncherLink& link, const std::string& key) {
  pb::StorePutRequest put;
  put.set_job_id(kJob);
  put.set_attempt(1);
  put.set_key(key);
  put.set_value("value");
  std::promise<LauncherLink::Reply> reply;
  link.StorePut(put, [&](LauncherLink::Reply r) { reply.set_value(r); });
  return reply.get_future().get();
}

pb::StoreGetRequest GetRequest(const std::string& key) {
  pb::StoreGetRequest get;
  get.set_job_id(kJob);
  get.set_attempt(1);
  get.set_key(key);
  return get;
}

/// A session whose messages a test numbers as it likes.
struct RawSession {
  std::unique_ptr<pb::Control::Stub> stub;
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReaderWriter<pb::AgentMessage, pb::LauncherMessage>> wire;
  explicit RawSession(const Server& server) : stub(StubOf(server.BootstrapOf(0), LauncherName(kJob))) {
    REQUIRE(Join(*stub, RequestOf(0)).ok());
    context.set_deadline(Deadline(kPatience));
    wire = stub->Session(&context);
  }
  void Write(uint64_t sequence, uint64_t epoch = 1, const std::string& job = kJob) {
    pb::AgentMessage message = EventOf(static_cast<int>(sequence));
    message.set_job_id(job);
    message.set_epoch(epoch);
    message.set_sequence(sequence);
    wire->Write(message);
  }
  grpc::Status End() {
    for (pb::LauncherMessage message; wire->Read(&message);) {
    }
    return wire->Finish();
  }
};

/// A launcher that numbers its messages as a test likes.
struct WrongLauncher final : pb::Control::Service {
  std::vector<pb::LauncherMessage> messages;
  grpc::Status Join(grpc::ServerContext*, const pb::JoinRequest*, pb::JoinReply*) override { return grpc::Status::OK; }
  grpc::Status Session(grpc::ServerContext*,
                       grpc::ServerReaderWriter<pb::LauncherMessage, pb::AgentMessage>* wire) override {
    for (const pb::LauncherMessage& message : messages) wire->Write(message);
    for (pb::AgentMessage message; wire->Read(&message);) {
    }
    return grpc::Status::OK;
  }
};

}  // namespace

TEST_CASE("An agent that was cut off, given up and healed cannot act for the job again") {
  Server server;
  server.server.BeginAttempt(1);
  Proxy network(server.server.address());
  pb::Bootstrap bootstrap = server.BootstrapOf(1);
  bootstrap.set_launcher_address(network.address());
  TestAgent agent(bootstrap);
  agent.link.Join({});
  REQUIRE(server.Next()->kind == ControlEvent::Kind::joined);
  REQUIRE(server.Next()->message->has_hello());
  server.server.ReadNext(1);
  agent.link.Send(EventOf(1));
  REQUIRE(server.Next()->message->event().rank() == 1);
  server.server.ReadNext(1);
  std::promise<LauncherLink::Reply> waited;
  agent.link.StoreGet(GetRequest("late"), Deadline(kPatience), [&](LauncherLink::Reply r) { waited.set_value(r); });
  REQUIRE(Put(agent.link, "before").code == 0);

  network.Cut();
  for (int rank = 2; rank < 5; ++rank) agent.link.Send(EventOf(rank));
  server.server.Fence(1);
  CHECK(server.server.Epoch(1) == 2);
  pb::LauncherMessage beat;
  beat.mutable_beat();
  server.server.Send(1, beat);  // to nobody
  network.Heal();

  CHECK(agent.ClosedInTime());  // so its agent ends its workers
  CHECK(!agent.received.PopUntil(std::chrono::steady_clock::now()));
  CHECK(!server.Next(0.2));  // neither what waited in the network nor the end of the session
  LauncherLink::Reply put = Put(agent.link, "after");
  CHECK(put.code == grpc::StatusCode::PERMISSION_DENIED);
  CHECK(put.message.find("declared lost") != std::string::npos);
  std::promise<LauncherLink::Reply> got;
  agent.link.StoreGet(GetRequest("before"), Deadline(kPatience), [&](LauncherLink::Reply r) { got.set_value(r); });
  CHECK(got.get_future().get().code == grpc::StatusCode::PERMISSION_DENIED);
  auto stub = StubOf(server.BootstrapOf(1), LauncherName(kJob));
  grpc::Status joined = Join(*stub, RequestOf(1));
  CHECK(joined.error_code() == grpc::StatusCode::PERMISSION_DENIED);
  CHECK(joined.error_message().find("declared lost") != std::string::npos);

  // The node itself may have a new agent, of the next epoch; what the old one still waited for, it does not get.
  TestAgent next(OfEpoch(server, 1, 2));
  next.link.Join({});
  std::optional<ControlEvent> again = server.Next();
  REQUIRE(again);
  CHECK(again->kind == ControlEvent::Kind::joined);
  CHECK(again->epoch == 2);
  CHECK(server.Next()->message->has_hello());
  CHECK(Put(next.link, "late").code == 0);
  CHECK(waited.get_future().get().code == grpc::StatusCode::PERMISSION_DENIED);
}

TEST_CASE("A message of an agent that is repeated, left out or of another epoch or job ends its session") {
  Server server;
  RawSession session(server);
  REQUIRE(server.Next()->kind == ControlEvent::Kind::joined);
  session.Write(1);
  REQUIRE(server.Next()->message->sequence() == 1);
  server.server.ReadNext(0);
  std::string named = "number 2";
  SECTION("repeated") { session.Write(1); }
  SECTION("left out") { session.Write(3); }
  SECTION("another epoch") {
    session.Write(2, 2);
    named = "epoch 2";
  }
  SECTION("another job") {
    session.Write(2, 1, "feedfeedfeedfeed");
    named = "feedfeedfeedfeed";
  }
  grpc::Status status = session.End();
  CHECK(status.error_code() == grpc::StatusCode::PERMISSION_DENIED);
  CHECK(status.error_message().find(named) != std::string::npos);
  CHECK(server.Next()->kind == ControlEvent::Kind::closed);
}

TEST_CASE("An agent acts on no message of the launcher that is repeated, left out or of another epoch or job") {
  JobAuthority authority;
  Credentials own = authority.Issue(LauncherName(kJob)), node = authority.Issue(NodeName(kJob, 0));
  WrongLauncher launcher;
  for (uint64_t sequence : {1, 2}) {
    pb::LauncherMessage message;
    message.set_job_id(kJob);
    message.set_epoch(1);
    message.set_sequence(sequence);
    message.mutable_beat();
    launcher.messages.push_back(message);
  }
  pb::LauncherMessage wrong = launcher.messages.back();
  wrong.mutable_start();
  wrong.set_sequence(3);
  SECTION("repeated") { wrong.set_sequence(2); }
  SECTION("left out") { wrong.set_sequence(4); }
  SECTION("another epoch") { wrong.set_epoch(2); }
  SECTION("another job") { wrong.set_job_id("feedfeedfeedfeed"); }
  launcher.messages.push_back(wrong);
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", MutualTls({authority.certificate(), own.certificate, own.private_key}),
                           &port);
  builder.RegisterService(&launcher);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  pb::Bootstrap bootstrap;
  bootstrap.set_job_id(kJob);
  bootstrap.set_epoch(1);
  bootstrap.set_launcher_address("127.0.0.1:" + std::to_string(port));
  bootstrap.set_ca_certificate(authority.certificate());
  bootstrap.set_certificate(node.certificate);
  bootstrap.set_private_key(node.private_key);
  bootstrap.set_lease_seconds(30);
  TestAgent agent(bootstrap);
  agent.link.Join({});
  CHECK(agent.ClosedInTime());
  std::vector<uint64_t> numbers;
  while (auto message = agent.received.PopUntil(std::chrono::steady_clock::now())) {
    numbers.push_back(message->sequence());
    CHECK(message->has_beat());
  }
  CHECK(numbers == std::vector<uint64_t>{1, 2});
  agent.link.Close(std::chrono::milliseconds(0));
  server->Shutdown(Deadline(1));
}

}  // namespace ds
