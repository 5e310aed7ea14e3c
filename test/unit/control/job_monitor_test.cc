// The job's state machine on a virtual clock.
#include "launcher/run/job_monitor.h"

#include <signal.h>

#include <algorithm>
#include <memory>

#include "test/catch.h"

namespace ds {
namespace {

using Kind = MonitorAction::Kind;

/// Two nodes of two ranks; time is a number of seconds.
class Harness {
 public:
  explicit Harness(MonitorSettings settings = {}) : monitor(settings, {"a", "b"}, {{0}, {0}, {1}, {1}}) {
    Take(monitor.Begin(At()));
  }

  MonitorTime At() const {
    return MonitorTime() + std::chrono::duration_cast<MonitorTime::duration>(std::chrono::duration<double>(now));
  }
  void Take(JobMonitor::Actions more) { actions.insert(actions.end(), more.begin(), more.end()); }

  /// Lets time pass in small steps; agents not in `silent` go on speaking.
  void Pass(double seconds, std::vector<int> silent = {}) {
    for (double end = now + seconds; now < end - 1e-9; now += 0.25) {
      for (int node = 0; node < 2; ++node) {
        if (!std::count(silent.begin(), silent.end(), node)) Take(monitor.AgentHeard(node, At()));
      }
      Take(monitor.Tick(At()));
    }
  }
  void Step(int64_t step) {
    for (int rank = 0; rank < 4; ++rank) Take(monitor.WorkerHeard({rank, step, "training"}, At()));
  }
  void End(WorkerEnd end) { Take(monitor.WorkerEnded(end, At())); }
  void End(int rank, int code, int signal = 0, int agent_signal = 0) {
    WorkerEnd end;
    end.rank = rank;
    end.code = code;
    end.signal = signal;
    end.agent_signal = agent_signal;
    End(end);
  }
  void Victim(int rank) {
    WorkerEnd end;
    end.rank = rank;
    end.code = kVictimExitCode;
    end.victim = true;
    End(end);
  }
  void EndCompleted(int rank) {
    WorkerEnd end;
    end.rank = rank;
    end.completed = true;
    End(end);
  }
  void EndStopped(int rank, int signal = 0) {
    WorkerEnd end;
    end.rank = rank;
    end.stopped = true;
    end.stop_signal = signal;
    End(end);
  }

  int Count(Kind kind) const {
    return static_cast<int>(std::count_if(actions.begin(), actions.end(), [&](auto& a) { return a.kind == kind; }));
  }
  int CountEvents(const std::string& event) const {
    return static_cast<int>(std::count_if(actions.begin(), actions.end(), [&](auto& a) { return a.event == event; }));
  }
  bool finished() const { return Count(Kind::finish) == 1; }

  JobMonitor monitor;
  JobMonitor::Actions actions;
  double now = 1000;
};

}  // namespace

TEST_CASE("All workers end with 0: completed") {
  Harness job;
  CHECK(job.Count(Kind::start_workers) == 1);
  job.Step(10);
  for (int rank = 0; rank < 4; ++rank) {
    CHECK(!job.finished());
    job.EndCompleted(rank);
  }
  REQUIRE(job.finished());
  CHECK(job.monitor.outcome().status == "completed");
  CHECK(job.monitor.outcome().exit_code == 0);
  CHECK(!job.monitor.outcome().cause);
  CHECK(job.Count(Kind::stop_workers) == 0);
}

TEST_CASE("The first failure in time is the cause; what we ended ourselves is not") {
  Harness job;
  job.End(2, 7);
  CHECK(job.Count(Kind::stop_workers) == 1);
  job.End(0, 0, SIGTERM, SIGTERM);
  job.End(1, 143, 0, SIGTERM);
  job.End(3, 9);
  REQUIRE(job.finished());
  CHECK(job.monitor.outcome().exit_code == 7);
  CHECK(job.monitor.outcome().cause->rank == 2);
  CHECK(job.monitor.outcome().cause->host == "b");
}

TEST_CASE("A victim that is heard of first is not the cause") {
  Harness job;
  job.Victim(0);
  job.Victim(1);
  CHECK(!job.finished());
  SECTION("a killed peer, though it had been asked to end by then") {
    job.End(3, 0, SIGKILL, SIGTERM);
    job.Victim(2);
    REQUIRE(job.finished());
    CHECK(job.monitor.outcome().exit_code == 137);
    CHECK(job.monitor.outcome().cause->rank == 3);
    CHECK(job.monitor.outcome().victims.size() == 3);
  }
  SECTION("a peer that tells of its own failure") {
    WorkerEnd end;
    end.rank = 3;
    end.code = 1;
    end.agent_signal = SIGTERM;
    end.message = "disk full";
    SECTION("of no kind of its own") {
      job.End(end);
      CHECK(job.CountEvents("worker_end") == 1);
      job.Victim(2);
      REQUIRE(job.finished());
      CHECK(job.monitor.outcome().cause->kind == "worker_exit");
    }
    SECTION("of a kind") {
      end.kind = "not_finite";
      job.End(end);
      job.Victim(2);
      REQUIRE(job.finished());
      CHECK(job.monitor.outcome().cause->kind == "not_finite");
    }
    CHECK(job.monitor.outcome().cause->rank == 3);
  }
  SECTION("a lost node") {
    job.Take(job.monitor.AgentClosed(1, job.At()));
    job.Take(job.monitor.AgentEnded(1, 0, SIGKILL, job.At()));
    REQUIRE(job.finished());
    CHECK(job.monitor.outcome().exit_code == 4);
    CHECK(job.monitor.outcome().cause->host == "b");
  }
  SECTION("nobody else: the first victim after all") {
    job.Victim(2);
    job.Victim(3);
    REQUIRE(job.finished());
    CHECK(job.monitor.outcome().exit_code == kVictimExitCode);
    CHECK(job.monitor.outcome().cause->rank == 0);
  }
}

TEST_CASE("After a failure workers have 5 s, then they are killed, then given up") {
  Harness job;
  job.End(0, 1);
  job.Pass(4.5);
  CHECK(job.Count(Kind::kill_workers) == 0);
  job.Pass(1);
  CHECK(job.Count(Kind::kill_workers) == 1);
  CHECK(!job.finished());
  job.Pass(11);
  REQUIRE(job.finished());
  CHECK(job.CountEvents("stuck") == 3);
  CHECK(job.monitor.outcome().exit_code == 1);
}

TEST_CASE("A silent agent whose machine answers is suspected for suspect_seconds, comes back or is lost") {
  Harness job;
  job.Pass(2.5, {1});
  CHECK(job.CountEvents("suspect") == 0);
  job.Pass(1, {1});
  CHECK(job.CountEvents("suspect") == 1);
  SECTION("stopped for ten seconds: back in time, and suspected anew") {
    job.Pass(6.5, {1});
    job.Pass(1);
    CHECK(job.CountEvents("recovered") == 1);
    job.Pass(22, {1});
    CHECK(job.CountEvents("suspect") == 2);
    CHECK(job.CountEvents("node_lost") == 0);
    CHECK(!job.monitor.stopping());
  }
  SECTION("lost") {
    job.Pass(19, {1});
    CHECK(job.CountEvents("node_lost") == 0);
    job.Pass(1, {1});
    CHECK(job.CountEvents("node_lost") == 1);
    CHECK(job.Count(Kind::drop_agent) == 1);
    job.Take(job.monitor.AgentEnded(0, 0, SIGKILL, job.At()));  // our own doing
    job.Victim(0);
    job.Victim(1);
    REQUIRE(job.finished());
    CHECK(job.monitor.outcome().exit_code == 4);
    CHECK(job.monitor.outcome().cause->kind == "node_lost");
    CHECK(job.monitor.outcome().cause->signal == 0);
    CHECK(job.monitor.outcome().cause->message.find("launch.suspect_seconds") != std::string::npos);
  }
}

TEST_CASE("lease_seconds bounds any silence") {
  MonitorSettings settings;
  settings.suspect_seconds = settings.lease_seconds = 5;
  Harness job(settings);
  job.Pass(4.5, {0});
  CHECK(job.CountEvents("node_lost") == 0);
  job.Pass(1, {0});
  CHECK(job.CountEvents("node_lost") == 1);
  for (int rank : {2, 3}) job.Victim(rank);
  REQUIRE(job.finished());
  CHECK(job.monitor.outcome().cause->message.find("launch.lease_seconds") != std::string::npos);
}

TEST_CASE("A machine that acknowledges nothing for 3 s is lost, whatever its agent said last") {
  Harness job;
  job.Pass(1);
  job.Take(job.monitor.LinkSeen(1, 2.9, job.At()));
  job.Take(job.monitor.LinkSeen(0, 0, job.At()));
  CHECK(job.CountEvents("node_lost") == 0);
  job.Take(job.monitor.LinkSeen(1, 3.0, job.At()));
  job.Take(job.monitor.LinkSeen(1, 3.1, job.At()));
  CHECK(job.CountEvents("node_lost") == 1);
  CHECK(job.Count(Kind::drop_agent) == 1);
  job.Take(job.monitor.AgentHeard(1, job.At()));  // healed: it has no say
  for (int rank : {0, 1}) job.Victim(rank);
  REQUIRE(job.finished());
  CHECK(job.CountEvents("recovered") == 0);
  CHECK(job.monitor.outcome().exit_code == 4);
  CHECK(job.monitor.outcome().cause->host == "b");
  CHECK(job.monitor.outcome().cause->message.find("acknowledged nothing for 3 s") != std::string::npos);
}

TEST_CASE("A launcher that was stopped for an hour holds its own silence against nobody") {
  MonitorSettings settings;
  settings.progress_seconds = 60;
  Harness job(settings);
  job.Step(5);
  job.Pass(30);
  job.now += 3600;
  job.Take(job.monitor.Tick(job.At()));
  job.Pass(20);
  CHECK(!job.monitor.stopping());
  CHECK(job.CountEvents("suspect") == 0);
  CHECK(job.CountEvents("no_progress") == 0);
  job.Pass(11);  // 61 s without a step that count
  CHECK(job.CountEvents("no_progress") == 1);
}

TEST_CASE("Of ranks that fail together the first is the cause, whichever is heard of first") {
  Harness job;
  const auto fail = [&](int rank, int64_t at_ns) {
    WorkerEnd end;
    end.rank = rank;
    end.code = 7;
    end.ended_ns = at_ns;
    job.Take(job.monitor.WorkerEnded(end, job.At()));
  };
  constexpr int64_t kSecond = 1'000'000'000;
  SECTION("on one node, by its clock") {
    fail(1, kSecond);
    fail(0, kSecond - 1000);
    for (int rank : {2, 3}) job.Victim(rank);
    CHECK(job.monitor.outcome().cause->rank == 0);
  }
  SECTION("on two nodes, by more than their clocks may differ") {
    fail(2, kSecond);
    fail(0, kSecond - 100'000'000);
    for (int rank : {1, 3}) job.Victim(rank);
    CHECK(job.monitor.outcome().cause->rank == 0);
  }
  SECTION("on two nodes, by less: the first that was heard of") {
    fail(2, kSecond);
    fail(0, kSecond - 1000);
    for (int rank : {1, 3}) job.Victim(rank);
    CHECK(job.monitor.outcome().cause->rank == 2);
  }
  SECTION("where it is not known: the first that was heard of") {
    fail(1, 0);
    fail(0, kSecond);
    for (int rank : {2, 3}) job.Victim(rank);
    CHECK(job.monitor.outcome().cause->rank == 1);
  }
  REQUIRE(job.finished());
}

TEST_CASE("Agents that end because the launcher was stopped: the cause says so") {
  Harness job;
  job.Pass(5);
  job.now += 100;  // more than the lease; what agents did meanwhile is heard before the next tick, and after it
  SECTION("heard first") {}
  SECTION("after a tick") { job.Take(job.monitor.Tick(job.At())); }
  job.Take(job.monitor.AgentClosed(0, job.At()));
  job.Take(job.monitor.AgentEnded(0, 1, 0, job.At()));
  for (int rank : {2, 3}) job.Victim(rank);
  REQUIRE(job.finished());
  const std::string& message = job.monitor.outcome().cause->message;
  CHECK(message.find("exit code 1, after ds-launch itself was stopped or starved for 10") != std::string::npos);
  CHECK(message.find("launch.lease_seconds (30 s)") != std::string::npos);
}

TEST_CASE("A stop that is shorter than the lease, or long ago, explains no lost agent") {
  Harness job;
  job.Pass(5);
  job.now += GENERATE(20, 100);
  job.Take(job.monitor.Tick(job.At()));
  if (job.now > 100) job.Pass(20);
  job.Take(job.monitor.AgentClosed(0, job.At()));
  job.Take(job.monitor.AgentEnded(0, 1, 0, job.At()));
  for (int rank : {2, 3}) job.Victim(rank);
  REQUIRE(job.finished());
  CHECK(job.monitor.outcome().cause->message.find("ds-launch itself") == std::string::npos);
}

TEST_CASE("A lost connection waits for the agent's signal, a second at most") {
  Harness job;
  job.Take(job.monitor.AgentClosed(0, job.At()));
  for (int rank : {2, 3}) job.Victim(rank);
  CHECK(!job.finished());
  SECTION("it comes") {
    job.Take(job.monitor.AgentEnded(0, 0, SIGTERM, job.At()));
    REQUIRE(job.finished());
    CHECK(job.monitor.outcome().cause->signal == SIGTERM);
    CHECK(job.Count(Kind::drop_agent) == 0);  // it ended by itself; a kill of ours would hide how
  }
  SECTION("it does not") {
    job.Pass(1.5);
    CHECK(job.Count(Kind::drop_agent) == 1);
    REQUIRE(job.finished());
    CHECK(job.monitor.outcome().cause->signal == 0);
  }
  CHECK(job.monitor.outcome().exit_code == 4);
}

TEST_CASE("No step for progress_seconds: the rank with the fewest steps, silent longest, is named") {
  MonitorSettings settings;
  settings.progress_seconds = 60;
  Harness job(settings);
  job.Step(5);
  job.Pass(50);
  job.Step(6);
  job.Pass(50);
  CHECK(job.CountEvents("no_progress") == 0);
  for (int rank : {0, 1, 3}) job.Take(job.monitor.WorkerHeard({rank, 6, "training"}, job.At()));
  WorkerBeat stopped{2, 6, "training"};
  stopped.silent_seconds = stopped.since_progress_seconds = 45;
  job.Take(job.monitor.WorkerHeard(stopped, job.At()));
  job.Pass(11);
  REQUIRE(job.CountEvents("no_progress") == 1);
  job.Pass(6);
  for (int rank = 0; rank < 4; ++rank) job.End(rank, 0, SIGKILL, SIGKILL);
  REQUIRE(job.finished());
  CHECK(job.monitor.outcome().exit_code == 5);
  CHECK(job.monitor.outcome().cause->rank == 2);

  settings.progress_seconds = 0;  // never
  Harness patient(settings);
  patient.Pass(3600);
  CHECK(!patient.monitor.stopping());
}

TEST_CASE("A signal: asked with a checkpoint, grace, then killed; the exit code is the signal's") {
  MonitorSettings settings;
  settings.grace_seconds = 10;
  Harness job(settings);
  job.Take(job.monitor.Signalled(SIGTERM, job.At()));
  REQUIRE(job.Count(Kind::stop_workers) == 1);
  CHECK(std::any_of(job.actions.begin(), job.actions.end(),
                    [](auto& a) { return a.kind == Kind::stop_workers && a.checkpoint; }));
  SECTION("they end") {
    for (int rank = 0; rank < 4; ++rank) job.EndStopped(rank);
    REQUIRE(job.finished());
    CHECK(job.Count(Kind::kill_workers) == 0);
  }
  SECTION("they do not") {
    job.Pass(9.5);
    CHECK(job.Count(Kind::kill_workers) == 0);
    job.Pass(1);
    CHECK(job.Count(Kind::kill_workers) == 1);
    for (int rank = 0; rank < 4; ++rank) job.End(rank, 0, SIGKILL, SIGKILL);
    REQUIRE(job.finished());
  }
  SECTION("a second signal does not wait") {
    job.Take(job.monitor.Signalled(SIGINT, job.At()));
    CHECK(job.Count(Kind::kill_workers) == 1);
    for (int rank = 0; rank < 4; ++rank) job.End(rank, 0, SIGKILL, SIGKILL);
    REQUIRE(job.finished());
  }
  SECTION("once one has failed, the others cannot finish their step: 5 s") {
    job.End(1, 0, SIGTERM, SIGTERM);
    job.Pass(4.5);
    CHECK(job.Count(Kind::kill_workers) == 0);
    job.Pass(1);
    CHECK(job.Count(Kind::kill_workers) == 1);
    for (int rank : {0, 2, 3}) job.End(rank, 0, SIGKILL, SIGKILL);
    REQUIRE(job.finished());
  }
  SECTION("a failure meanwhile is not the cause") {
    job.End(0, 1);
    for (int rank : {1, 2, 3}) job.Victim(rank);
    REQUIRE(job.finished());
  }
  CHECK(job.monitor.outcome().status == "interrupted");
  CHECK(job.monitor.outcome().exit_code == 143);
}

TEST_CASE("Programs get the signal that came") {
  MonitorSettings settings;
  settings.programs = true;
  settings.grace_seconds = 10;
  settings.restarts.any = 1;
  Harness job(settings);
  auto sent = [&](Kind kind, int signal) {
    return std::count_if(job.actions.begin(), job.actions.end(),
                         [&](auto& a) { return a.kind == kind && a.signal == signal; });
  };
  SECTION("SIGINT as SIGINT, with the grace") {
    job.Take(job.monitor.Signalled(SIGINT, job.At()));
    CHECK(sent(Kind::stop_workers, SIGINT) == 1);
    job.Pass(11);
    CHECK(job.Count(Kind::kill_workers) == 1);
  }
  SECTION("SIGUSR1 is passed on: who ends by it was preempted") {
    job.Take(job.monitor.Signalled(SIGUSR1, job.At()));
    CHECK(sent(Kind::pass_signal, SIGUSR1) == 1);
    CHECK(job.Count(Kind::stop_workers) == 0);
    job.Pass(2);
    for (int rank = 0; rank < 4; ++rank) job.End(rank, 0);
    REQUIRE(job.finished());
    CHECK(job.monitor.outcome().status == "preempted");
    CHECK(job.monitor.outcome().exit_code == 128 + SIGUSR1);
  }
  SECTION("who goes on after SIGUSR1 is neither killed nor preempted") {
    for (int signal : {SIGUSR1, SIGUSR1, SIGUSR2}) job.Take(job.monitor.Signalled(signal, job.At()));
    CHECK(sent(Kind::pass_signal, SIGUSR1) == 2);
    job.Pass(60);
    CHECK(job.Count(Kind::kill_workers) == 0);
    for (int rank = 0; rank < 4; ++rank) job.End(rank, 0);
    REQUIRE(job.finished());
    CHECK(job.monitor.outcome().status == "completed");
    CHECK(job.monitor.outcome().exit_code == 0);
  }
  SECTION("SIGTERM after SIGUSR1 is the first that ends the job, with the grace") {
    job.Take(job.monitor.Signalled(SIGUSR1, job.At()));
    job.Take(job.monitor.Signalled(SIGTERM, job.At()));
    CHECK(sent(Kind::stop_workers, SIGTERM) == 1);
    CHECK(job.Count(Kind::kill_workers) == 0);
    for (int rank = 0; rank < 4; ++rank) job.End(rank, 0, SIGTERM, SIGTERM);
    REQUIRE(job.finished());
    CHECK(job.monitor.outcome().exit_code == 143);
  }
}

TEST_CASE("A signal that comes when all steps are done changes nothing") {
  Harness job;
  job.Take(job.monitor.Signalled(SIGINT, job.At()));
  for (int rank = 0; rank < 4; ++rank) job.EndCompleted(rank);
  REQUIRE(job.finished());
  CHECK(job.monitor.outcome().exit_code == 0);
}

TEST_CASE("A signal during a failure's ending kills at once; the failure stays the cause, nothing restarts") {
  MonitorSettings settings;
  settings.restarts.any = 5;
  Harness job(settings);
  job.End(1, 3);
  job.Take(job.monitor.Signalled(SIGINT, job.At()));
  CHECK(job.Count(Kind::kill_workers) == 1);
  for (int rank : {0, 2, 3}) job.End(rank, 0, SIGKILL, SIGKILL);
  REQUIRE(job.finished());
  CHECK(job.monitor.outcome().exit_code == 3);
  CHECK(job.Count(Kind::start_workers) == 1);
}

TEST_CASE("A signal before workers run ends the job") {
  JobMonitor monitor({}, {"a"}, {{0}});
  JobMonitor::Actions actions = monitor.Signalled(SIGINT, MonitorTime());
  REQUIRE(actions.back().kind == Kind::finish);
  CHECK(monitor.outcome().exit_code == 130);
}

TEST_CASE("Somebody else's SIGTERM to the workers is not a completion") {
  Harness job;
  for (int rank = 0; rank < 4; ++rank) job.EndStopped(rank);
  REQUIRE(job.finished());
  CHECK(job.monitor.outcome().status == "interrupted");
  CHECK(job.monitor.outcome().exit_code == 143);
}

TEST_CASE("Somebody else's signal: the rank that got it is named, and the signal") {
  Harness job;
  for (int rank : {0, 1}) job.EndStopped(rank);
  job.EndStopped(2, SIGINT);
  job.EndStopped(3);
  REQUIRE(job.finished());
  CHECK(job.monitor.outcome().exit_code == 130);
  CHECK(job.monitor.outcome().cause->rank == 2);
  CHECK(job.monitor.outcome().cause->signal == SIGINT);
}

TEST_CASE("Restarts: within the budget, while steps are done, never for the user's errors or a lost node") {
  MonitorSettings settings;
  settings.restarts.any = 2;
  Harness job(settings);
  auto fail = [&](int code) {
    job.End(1, code);
    for (int rank : {0, 2, 3}) job.Victim(rank);
  };
  SECTION("the budget ends") {
    for (int64_t step : {5, 6, 7}) {
      job.Step(step);
      fail(1);
    }
    REQUIRE(job.finished());
    CHECK(job.Count(Kind::start_workers) == 3);
    CHECK(job.monitor.attempt() == 3);
  }
  SECTION("no step since the last restart") {
    job.Step(5);
    fail(1);
    fail(1);
    REQUIRE(job.finished());
    CHECK(job.Count(Kind::start_workers) == 2);
    CHECK(job.CountEvents("restart_refused") == 1);
  }
  SECTION("programs have no steps: their budget alone counts") {
    settings.programs = true;
    Harness program(settings);
    for (int times = 0; times < 3; ++times) {
      program.End(1, 1);
      for (int rank : {0, 2, 3}) program.End(rank, 143);
    }
    REQUIRE(program.finished());
    CHECK(program.Count(Kind::start_workers) == 3);
    CHECK(program.CountEvents("restart_refused") == 0);
  }
  SECTION("what is left of the budget is told") {
    job.Step(5);
    fail(1);
    job.Step(6);
    fail(1);
    std::vector<std::string> told;
    for (const MonitorAction& action : job.actions)
      if (action.event == "restart") told.push_back(action.text.substr(action.text.rfind(';')));
    REQUIRE(told.size() == 2);
    CHECK(told[0] == "; starting the workers again, at most 1 more time (launch.restarts)");
    CHECK(told[1] == "; starting the workers again, for the last time (launch.restarts)");
  }
  SECTION("a wrong spec stays wrong") {
    job.Step(5);
    fail(2);
    REQUIRE(job.finished());
    CHECK(job.Count(Kind::start_workers) == 1);
  }
  SECTION("a lost node") {
    job.Step(5);
    job.Take(job.monitor.AgentEnded(1, 0, SIGKILL, job.At()));
    for (int rank : {0, 1}) job.Victim(rank);
    REQUIRE(job.finished());
    CHECK(job.monitor.outcome().exit_code == 4);
    CHECK(job.Count(Kind::start_workers) == 1);
  }
  SECTION("how long it took from the failure to the next step is told") {
    job.Step(5);
    fail(1);
    job.now += 2.5;
    job.Step(6);
    job.Step(7);
    REQUIRE(job.CountEvents("going_on") == 1);
    auto told = std::find_if(job.actions.begin(), job.actions.end(), [](auto& a) { return a.event == "going_on"; });
    CHECK(told->text.find("2.5 s after the failure") != std::string::npos);
  }
  SECTION("the end after a restart is judged by its own attempt") {
    job.Step(5);
    fail(1);
    for (int rank = 0; rank < 4; ++rank) job.EndCompleted(rank);
    REQUIRE(job.finished());
    CHECK(job.monitor.outcome().exit_code == 0);
  }
}

TEST_CASE("Each cause of a restart has its own budget") {
  MonitorSettings settings;
  settings.progress_seconds = 60;
  settings.restarts = {true, 0, 2, 1, std::nullopt};  // two of workers, one of hangs
  Harness job(settings);
  auto fail = [&](int64_t step) {
    job.Step(step);
    job.End(1, 1);
    for (int rank : {0, 2, 3}) job.Victim(rank);
  };
  auto hang = [&](int64_t step) {
    job.Step(step);
    job.Pass(61);
    for (int rank = 0; rank < 4; ++rank) job.Victim(rank);
  };
  SECTION("hangs") {
    hang(1);
    CHECK(job.monitor.attempt() == 2);
    hang(2);
    REQUIRE(job.finished());
    CHECK(job.monitor.outcome().exit_code == 5);
  }
  SECTION("workers, beside hangs") {
    fail(1);
    hang(2);
    fail(3);
    CHECK(job.monitor.attempt() == 4);
    fail(4);
    REQUIRE(job.finished());
    CHECK(job.monitor.outcome().exit_code == 1);
  }
}

namespace {

/// Nodes a, b and c of two ranks; the job goes on with two nodes or with one.
struct Shrinking {
  explicit Shrinking(RestartBudgets restarts = {}) {
    settings.restarts = restarts;
    settings.refit = [this](const std::vector<int>& left) {
      asked.push_back(left);
      MonitorRefit refit{{}, refuses.empty() ? "what is left" : refuses};
      if (refuses.empty())
        for (int node : left) refit.ranks.insert(refit.ranks.end(), 2, MonitorRank{node});
      return refit;
    };
    monitor = std::make_unique<JobMonitor>(settings, std::vector<std::string>{"a", "b", "c"},
                                           std::vector<MonitorRank>{{0}, {0}, {1}, {1}, {2}, {2}});
    Take(monitor->Begin(now));
  }
  void Take(JobMonitor::Actions more) { actions.insert(actions.end(), more.begin(), more.end()); }
  void Step(int64_t step, int ranks) {
    for (int rank = 0; rank < ranks; ++rank) Take(monitor->WorkerHeard({rank, step, "training"}, now));
  }
  void Victims(std::vector<int> ranks) {
    for (int rank : ranks) {
      WorkerEnd end;
      end.rank = rank;
      end.code = kVictimExitCode;
      end.victim = true;
      Take(monitor->WorkerEnded(end, now));
    }
  }
  int Count(Kind kind) const {
    return static_cast<int>(std::count_if(actions.begin(), actions.end(), [&](auto& a) { return a.kind == kind; }));
  }
  MonitorSettings settings;
  std::vector<std::vector<int>> asked;
  std::string refuses;
  std::unique_ptr<JobMonitor> monitor;
  JobMonitor::Actions actions;
  MonitorTime now = MonitorTime() + std::chrono::seconds(1000);
};

}  // namespace

TEST_CASE("After a lost node the job goes on with those left, as often as there are nodes") {
  Shrinking job;
  job.Step(5, 6);
  job.Take(job.monitor->LinkSeen(1, 3.2, job.now));
  job.Victims({0, 1, 4, 5});
  CHECK(job.asked == std::vector<std::vector<int>>{{0, 2}});
  CHECK(job.Count(Kind::start_workers) == 2);
  CHECK(job.Count(Kind::drop_agent) == 1);
  const auto told = std::find_if(job.actions.begin(), job.actions.end(), [](auto& a) { return a.event == "restart"; });
  CHECK(told->text.find("acknowledged nothing") != std::string::npos);
  CHECK(told->text.find(" on what is left") != std::string::npos);
  SECTION("and completes") {
    for (int rank = 0; rank < 4; ++rank) {
      WorkerEnd end;
      end.rank = rank;
      end.completed = true;
      job.Take(job.monitor->WorkerEnded(end, job.now));
    }
    REQUIRE(job.Count(Kind::finish) == 1);
    CHECK(job.monitor->outcome().status == "completed");
  }
  SECTION("another is lost before a step was done") {
    job.Take(job.monitor->AgentEnded(0, 0, SIGKILL, job.now));
    job.Victims({2, 3});
    CHECK(job.asked.back() == std::vector<int>{2});
    CHECK(job.Count(Kind::start_workers) == 3);
    job.refuses = "none left";
    job.Take(job.monitor->AgentEnded(2, 0, SIGKILL, job.now));
    REQUIRE(job.Count(Kind::finish) == 1);
    CHECK(job.monitor->outcome().exit_code == 4);
    CHECK(job.monitor->outcome().cause->host == "c");
  }
  SECTION("the healed one has no say") {
    job.Take(job.monitor->AgentHeard(1, job.now));
    job.Take(job.monitor->AgentClosed(1, job.now));
    job.Take(job.monitor->AgentEnded(1, 1, 0, job.now));
    CHECK(!job.monitor->stopping());
  }
}

TEST_CASE("A lost node ends the job where it cannot go on, or its budget is used up") {
  SECTION("refused, with the reason") {
    Shrinking job;
    job.refuses = "no width divides";
    job.Take(job.monitor->AgentEnded(1, 0, SIGKILL, job.now));
    job.Victims({0, 1, 4, 5});
    REQUIRE(job.Count(Kind::finish) == 1);
    CHECK(job.monitor->outcome().exit_code == 4);
    CHECK(std::any_of(job.actions.begin(), job.actions.end(), [](auto& a) {
      return a.event == "restart_refused" && a.text.find("no width divides") != std::string::npos;
    }));
  }
  SECTION("budget of nodes") {
    Shrinking job({true, 0, 0, 0, 1});
    job.Step(1, 6);
    job.Take(job.monitor->AgentEnded(1, 0, SIGKILL, job.now));
    job.Victims({0, 1, 4, 5});
    CHECK(job.monitor->attempt() == 2);
    job.Step(2, 4);
    job.Take(job.monitor->AgentEnded(2, 0, SIGKILL, job.now));
    job.Victims({0, 1});
    REQUIRE(job.Count(Kind::finish) == 1);
    CHECK(job.monitor->outcome().exit_code == 4);
  }
  SECTION("the user's signal comes first") {
    Shrinking job;
    job.Take(job.monitor->Signalled(SIGTERM, job.now));
    job.Take(job.monitor->AgentEnded(1, 0, SIGKILL, job.now));
    job.Victims({0, 1, 4, 5});
    REQUIRE(job.Count(Kind::finish) == 1);
    CHECK(job.asked.empty());
  }
}

TEST_CASE("A spare that is lost ends nothing, and is not asked later") {
  MonitorSettings settings;
  std::vector<std::vector<int>> asked;
  settings.refit = [&](const std::vector<int>& left) {
    asked.push_back(left);
    return MonitorRefit{{{left[0]}}, "one"};
  };
  JobMonitor monitor(settings, {"a", "b", "c"}, {{0}, {1}});
  const MonitorTime now = MonitorTime() + std::chrono::seconds(1000);
  monitor.Begin(now);
  JobMonitor::Actions actions = monitor.AgentClosed(2, now);
  CHECK(std::any_of(actions.begin(), actions.end(), [](auto& a) { return a.event == "node_lost"; }));
  CHECK(!monitor.stopping());
  monitor.AgentEnded(0, 0, SIGKILL, now);
  WorkerEnd victim;
  victim.rank = 1;
  victim.code = kVictimExitCode;
  victim.victim = true;
  monitor.WorkerEnded(victim, now);
  CHECK(asked == std::vector<std::vector<int>>{{1}});
  CHECK(monitor.attempt() == 2);
}

}  // namespace ds
