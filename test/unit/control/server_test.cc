// The launcher's server lets in who belongs to the job and nobody else; the store; message bounds.
#include <openssl/bio.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <condition_variable>
#include <future>
#include <mutex>

#include "launcher/control/rendezvous.h"
#include "runtime/base/error.h"
#include "test/catch.h"
#include "test/unit/control/server.h"

namespace ds {

TEST_CASE("An agent of the job joins, has its session, and messages go both ways") {
  Server server;
  Queue<pb::LauncherMessage> received;
  std::promise<void> closed;
  LauncherLink link(server.BootstrapOf(1),
                    {[&](pb::LauncherMessage&& m) { received.Push(std::move(m)); }, [&] { closed.set_value(); }});
  pb::NodeFacts facts;
  facts.set_hostname("w1");
  link.Join(facts);
  std::optional<ControlEvent> joined = server.Next();
  REQUIRE(joined);
  CHECK(joined->kind == ControlEvent::Kind::joined);
  CHECK(joined->node == 1);
  CHECK(joined->facts->hostname() == "w1");
  CHECK(server.Next()->message->has_hello());

  pb::LauncherMessage beat;
  beat.mutable_beat();
  server.server.Send(1, beat);
  auto until = std::chrono::steady_clock::now() + std::chrono::seconds(static_cast<int>(kPatience));
  std::optional<pb::LauncherMessage> got = received.PopUntil(until);
  REQUIRE(got);
  CHECK(got->has_beat());
  CHECK(got->job_id() == kJob);

  SECTION("messages come one at a time, as the launcher lets them in") {
    for (int rank = 0; rank < 3; ++rank) {
      pb::AgentMessage message;
      message.mutable_event()->set_rank(rank);
      link.Send(message);
    }
    CHECK(!server.Next(0.1));
    for (int rank = 0; rank < 3; ++rank) {
      server.server.ReadNext(1);
      CHECK(server.Next()->message->event().rank() == rank);
    }
  }
  SECTION("a message too large ends the session") {
    server.server.ReadNext(1);
    pb::AgentMessage message;
    message.mutable_event()->set_message(std::string(kMaxMessageBytes + 1, 'x'));
    link.Send(message);
    CHECK(server.Next()->kind == ControlEvent::Kind::closed);
  }
  SECTION("a session that the launcher ends is told") {
    server.server.EndSessions();
    CHECK(received.PopUntil(until)->has_end());
    CHECK(closed.get_future().wait_until(until) == std::future_status::ready);
  }
  SECTION("values left by one are found by another, who may have come first") {
    pb::StoreGetRequest get;
    get.set_attempt(1);
    get.set_key("id");
    pb::StorePutRequest put;
    put.set_attempt(1);
    put.set_key("id");
    put.set_value(std::string("\0value", 6));
    get.set_job_id(kJob);
    put.set_job_id(kJob);
    server.server.BeginAttempt(1);
    std::promise<LauncherLink::Reply> found, missing, over;
    link.StoreGet(get, Deadline(kPatience), [&](LauncherLink::Reply r) { found.set_value(r); });
    link.StorePut(put, [](LauncherLink::Reply) {});
    CHECK(found.get_future().get().value == std::string("\0value", 6));
    get.set_key("nobody");
    link.StoreGet(get, Deadline(0.2), [&](LauncherLink::Reply r) { missing.set_value(r); });
    CHECK(missing.get_future().get().code == grpc::StatusCode::DEADLINE_EXCEEDED);
    link.StoreGet(get, Deadline(kPatience), [&](LauncherLink::Reply r) { over.set_value(r); });
    link.Close(std::chrono::milliseconds(0));
    CHECK(over.get_future().get().code != 0);
  }
}

TEST_CASE("Strangers get nothing", "[refused-tls]") {
  Server server;
  JobAuthority other;
  SECTION("a certificate of another job's authority") {
    auto stub = StubOf(server.BootstrapBy(other, server.authority, 0), LauncherName(kJob));
    CHECK(Join(*stub, RequestOf(0)).error_code() == grpc::StatusCode::UNAVAILABLE);
  }
  SECTION("an agent does not talk to a launcher of another authority") {
    auto stub = StubOf(server.BootstrapBy(server.authority, other, 0), LauncherName(kJob));
    CHECK(Join(*stub, RequestOf(0)).error_code() == grpc::StatusCode::UNAVAILABLE);
  }
  SECTION("nor to a server that is not the job's launcher") {
    auto stub = StubOf(server.BootstrapOf(0), LauncherName("another-job"));
    CHECK(Join(*stub, RequestOf(0)).error_code() == grpc::StatusCode::UNAVAILABLE);
  }
  SECTION("no certificate at all") {
    pb::Bootstrap bootstrap = server.BootstrapOf(0);
    bootstrap.clear_certificate();
    bootstrap.clear_private_key();
    CHECK(Join(*StubOf(bootstrap, LauncherName(kJob)), RequestOf(0)).error_code() == grpc::StatusCode::UNAVAILABLE);
  }
  SECTION("a node that says it is another") {
    auto stub = StubOf(server.BootstrapOf(0), LauncherName(kJob));
    CHECK(Join(*stub, RequestOf(1)).error_code() == grpc::StatusCode::PERMISSION_DENIED);
  }
  SECTION("a node that the job does not have") {
    auto stub = StubOf(server.BootstrapOf(7), LauncherName(kJob));
    CHECK(Join(*stub, RequestOf(7)).error_code() == grpc::StatusCode::PERMISSION_DENIED);
  }
  SECTION("an agent of another epoch of the node") {
    pb::Bootstrap bootstrap = server.BootstrapOf(0);
    Credentials next = server.authority.Issue(NodeName(kJob, 0, 2));
    bootstrap.set_certificate(next.certificate);
    bootstrap.set_private_key(next.private_key);
    auto stub = StubOf(bootstrap, LauncherName(kJob));
    CHECK(Join(*stub, RequestOf(0)).error_code() == grpc::StatusCode::PERMISSION_DENIED);
  }
  SECTION("a message of another epoch") {
    auto stub = StubOf(server.BootstrapOf(0), LauncherName(kJob));
    pb::JoinRequest request = RequestOf(0);
    request.set_epoch(0);
    CHECK(Join(*stub, request).error_code() == grpc::StatusCode::PERMISSION_DENIED);
  }
  SECTION("a message too large") {
    auto stub = StubOf(server.BootstrapOf(0), LauncherName(kJob));
    pb::JoinRequest request = RequestOf(0);
    request.mutable_facts()->set_hostname(std::string(kMaxMessageBytes + 1, 'x'));
    CHECK(Join(*stub, request).error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
  }
  CHECK(!server.Next(0.05));
}

TEST_CASE("Programs of different builds are told apart, both named") {
  Server server;
  auto stub = StubOf(server.BootstrapOf(0), LauncherName(kJob));
  pb::JoinRequest request = RequestOf(0);
  SECTION("build") { request.set_build("0.0.9"); }
  SECTION("protocol") { request.set_protocol(kProtocolVersion + 1); }
  grpc::Status status = Join(*stub, request);
  CHECK(status.error_code() == grpc::StatusCode::FAILED_PRECONDITION);
  CHECK(status.error_message().find(request.build()) != std::string::npos);
  CHECK(status.error_message().find(BuildVersion()) != std::string::npos);
  std::optional<ControlEvent> refused = server.Next();
  REQUIRE(refused);
  CHECK(refused->kind == ControlEvent::Kind::refused);
}

TEST_CASE("An expired certificate is refused") {
  Server server;
  Credentials expired = server.authority.Issue(NodeName(kJob, 0), -1);
  pb::Bootstrap bootstrap = server.BootstrapOf(0);
  bootstrap.set_certificate(expired.certificate);
  bootstrap.set_private_key(expired.private_key);
  CHECK(Join(*StubOf(bootstrap, LauncherName(kJob)), RequestOf(0)).error_code() == grpc::StatusCode::UNAVAILABLE);
}

TEST_CASE("The server ends while calls wait") {
  auto server = std::make_unique<Server>();
  server->server.BeginAttempt(1);
  auto stub = StubOf(server->BootstrapOf(0), LauncherName(kJob));
  pb::StoreGetRequest request;
  request.set_job_id(kJob);
  request.set_epoch(1);
  request.set_attempt(1);
  request.set_key("never");
  PendingCall call;
  grpc::ClientContext context;
  context.set_deadline(Deadline(kPatience));
  pb::StoreGetReply reply;
  stub->async()->StoreGet(&context, &request, &reply, &call);
  call.started.Give();
  call.StartCall();
  REQUIRE(Join(*stub, RequestOf(0)).ok());  // by now the server has the first call
  server.reset();
  CHECK(!call.ended.get_future().get().ok());
}

TEST_CASE("Rendezvous: values of one attempt at a time") {
  Rendezvous store;
  store.BeginAttempt(1);
  std::vector<std::optional<std::string>> got;
  auto keep = [&](std::optional<std::string> value) { got.push_back(value); };
  store.Get(1, "k", keep);
  CHECK(got.empty());
  CHECK(store.Put(1, "k", "v"));
  CHECK(got == std::vector<std::optional<std::string>>{"v"});
  store.Get(1, "k", keep);
  CHECK(got.size() == 2);
  uint64_t ticket = store.Get(1, "other", keep);
  CHECK(store.Cancel(ticket));
  CHECK(!store.Cancel(ticket));
  store.Get(1, "third", keep);
  store.BeginAttempt(2);
  REQUIRE(got.size() == 3);
  CHECK(!got[2]);
  CHECK(!store.Put(1, "k", "late"));  // a worker of the past
  store.Get(2, "k", keep);
  CHECK(got.size() == 3);
  CHECK(!store.Put(2, "big", std::string(Rendezvous::kMaxBytes, 'x')));
}

}  // namespace ds
