#include "agent/agent.h"

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <utility>
#include <variant>

#include "agent/affinity.h"
#include "agent/gpus.h"
#include "agent/input_watch.h"
#include "agent/launcher_link.h"
#include "agent/local_server.h"
#include "agent/node_facts.h"
#include "agent/out_of_memory.h"
#include "agent/output_reader.h"
#include "agent/port_claim.h"
#include "agent/preflight/prober.h"
#include "agent/stack_questions.h"
#include "agent/workers.h"
#include "proto/deepshard.pb.h"
#include "runtime/base/clock.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/base/process.h"
#include "runtime/base/queue.h"
#include "runtime/base/secret.h"
#include "runtime/base/signal.h"
#include "runtime/base/socket.h"

namespace ds {
namespace {

namespace pb = ::deepshard::v1;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr auto kBatchEvery = std::chrono::seconds(1);
/// How long the last lines and messages of an ended worker may take to arrive: its own are there at once, but a child
/// that it left behind may hold its pipes open.
constexpr auto kSettle = milliseconds(500);
/// Log lines that wait for the network beyond this stop the reading of workers' output.
constexpr size_t kMaxWaitingBytes = 8 << 20;
/// Lines that go into one message: less than the longest message (16 MiB) by far.
constexpr size_t kMaxLogMessage = 4 << 20;

const std::vector<int> kSignals{SIGTERM, SIGINT, SIGHUP};
const std::vector<int> kLeftSignals{SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

// What the main thread is told by the others.
struct LauncherSaid {
  pb::LauncherMessage message;
};
struct LauncherGone {};
struct WorkerSaid {
  WorkerKey worker;
  pb::WorkerMessage message;
};
struct LinkClosed {
  WorkerKey worker;
};
struct OutputEnded {
  WorkerKey worker;
};
struct ChildEnded {
  pid_t pid;
  ProcessEnd end;
};
struct Signalled {
  int signal;
};
struct InputEnded {};
using Happening =
    std::variant<LauncherSaid, LauncherGone, WorkerSaid, LinkClosed, OutputEnded, ChildEnded, Signalled, InputEnded>;

void RaiseOpenFileLimit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

struct Agent::Impl {
  Impl(const pb::Bootstrap& b, const AgentOptions& o)
      : options(o),
        signals(o.leave_signals ? kLeftSignals : kSignals, [this](int s) { Interrupt(Signalled{s}); }),
        bootstrap(b),
        link(b, {[this](pb::LauncherMessage&& m) { queue.Push(LauncherSaid{std::move(m)}); },
                 [this] { queue.Push(LauncherGone{}); }}),
        server(link, b.job_id(),
               {[this](WorkerKey k, pb::WorkerMessage&& m) {
                  queue.Push(WorkerSaid{k, std::move(m)});
                },
                [this](WorkerKey k) { queue.Push(LinkClosed{k}); }}),
        output([this](WorkerKey k, std::vector<OutputLine> lines) { PassLines(k, std::move(lines)); },
               [this](WorkerKey k, uint64_t count) { TellDropped(k, count); },
               [this](WorkerKey k) { queue.Push(OutputEnded{k}); }),
        watcher([this](pid_t pid, ProcessEnd end) {
          queue.Push(ChildEnded{pid, end});
        }),
        workers(watcher, output) {}

  const AgentOptions options;
  Queue<Happening> queue;
  std::atomic<LauncherLink*> joining{nullptr};  ///< what keeps the main thread from the queue
  SignalWatcher signals;
  pb::Bootstrap bootstrap;
  pb::NodeFacts facts;
  std::vector<GpuFacts> gpus;
  std::optional<Topology> topology;  ///< once it was needed
  PortClaim master_port;
  LauncherLink link;
  LocalServer server;
  OutputReader output;
  ProcessWatcher watcher;
  Workers workers;
  StackQuestions questions{workers, server, [this](pb::Stacks stacks) {
                             pb::AgentMessage message = Envelope();
                             *message.mutable_stacks() = std::move(stacks);
                             link.Send(std::move(message));
                           }};
  OutOfMemoryWatch memory;
  std::optional<Prober> prober;  ///< while the preflight lasts

  Clock::time_point launcher_heard = Clock::now();
  Clock::time_point next_batch = Clock::now();
  std::optional<pb::Stop> asked;  ///< what this attempt's workers were asked; those that link up later are asked then
  bool joined = false;
  std::optional<int> exit_code;

  /// Told while the agent joins, too.
  void Interrupt(Happening happening) {
    queue.Push(std::move(happening));
    if (LauncherLink* link_that_joins = joining) link_that_joins->Abort();
  }

  int Run() {
    std::optional<InputWatch> input;
    joining = &link;
    if (options.input_fd >= 0) input.emplace(options.input_fd, [this] { Interrupt(InputEnded{}); });
    BecomeSubreaper();
    RaiseOpenFileLimit();
    CollectNodeFacts(bootstrap, facts);
    if (facts.gpus_size() > 0) gpus = VisibleGpus();
    facts.set_free_port(master_port.port());
    facts.set_address(AddressTowards(link.Connect()));
    link.Join(facts);
    joining = nullptr;
    joined = true;
    launcher_heard = Clock::now();
    while (!exit_code) {
      if (std::optional<Happening> happening = queue.PopUntil(NextDue())) {
        std::visit([this](auto& h) { On(h); }, *happening);
      }
      OnTime(Clock::now());
    }
    prober.reset();
    workers.Signal(SIGKILL);
    KillDescendants({}, 5);
    link.Close(*exit_code == 0 ? milliseconds(1000) : milliseconds(0));
    return *exit_code;
  }

  Clock::time_point NextDue() {
    Clock::time_point due = std::min(next_batch, questions.NextDue());
    for (auto& [rank, worker] : workers.all()) {
      if (worker.end && !worker.reported) due = std::min(due, worker.ended_at + kSettle);
    }
    return due;
  }

  void OnTime(Clock::time_point now) {
    if (now >= next_batch) {
      SendBatch(now);
      next_batch = now + kBatchEvery;
    }
    questions.OnTime(now);
    for (auto& [rank, worker] : workers.all()) ReportEnd(worker, now);
    if (now - launcher_heard > std::chrono::duration<double>(bootstrap.lease_seconds())) {
      End(1, "the launcher has been silent for launch.lease_seconds: ending this node's workers");
    }
  }

  // ---- the launcher

  void On(LauncherSaid& said) {
    const pb::LauncherMessage& message = said.message;
    if (message.job_id() != bootstrap.job_id()) return;
    launcher_heard = Clock::now();
    if (message.has_probe_listen() || message.has_probe_dial()) Probe(message);
    if (message.has_start() && message.attempt() > workers.attempt()) StartWorkers(message);
    if (message.has_end()) exit_code = 0;
    if (message.attempt() != workers.attempt()) return;  // meant for workers of the past
    if (message.has_stop()) StopWorkers(message.stop());
    if (message.has_pass()) workers.Signal(message.pass().signal());
    if (message.has_ask_stacks()) questions.Ask(message.ask_stacks(), Clock::now());
    if (message.has_kill()) {
      questions.AnswerAll();
      workers.Signal(SIGKILL);
    }
  }

  void On(LauncherGone&) { End(1, "the connection to the launcher is lost: ending this node's workers"); }

  void On(InputEnded&) {
    End(1, "standard input ended, so what started this agent is gone: ending this node's workers");
  }

  void On(Signalled& signalled) {
    if (options.leave_signals && joined) return;
    End(128 + signalled.signal, SignalName(signalled.signal) + " received: ending this node's workers");
  }

  void End(int code, const std::string& why) {
    if (exit_code) return;
    LogWarning("ds-agent on " + bootstrap.host() + ": " + why);
    exit_code = code;
  }

  void Probe(const pb::LauncherMessage& message) {
    if (!prober) {
      prober.emplace([this](pb::ProbeResult result) {
        pb::AgentMessage up;
        *up.mutable_probe_result() = std::move(result);
        link.Send(std::move(up));
      });
    }
    if (message.has_probe_dial()) return prober->Dial(message.probe_dial());
    pb::AgentMessage up;
    *up.mutable_probe_listening() = prober->Listen(message.probe_listen().address());
    link.Send(std::move(up));
  }

  void StartWorkers(const pb::LauncherMessage& message) {
    prober.reset();
    KillDescendants({}, 5);  // nothing of an earlier attempt is left beside the new one
    WorkerSetting setting;
    setting.start = message.start();
    setting.attempt = message.attempt();
    setting.job_id = bootstrap.job_id();
    setting.socket_path = server.socket_path();
    setting.gpus = GpusOfWorkers(gpus, message.start());
    asked.reset();
    master_port.LetListen();
    questions.Forget();
    std::string unbound = Bind(setting);
    const bool bind = message.start().bind();
    workers.Start(std::move(setting));
    if (bind) TellAffinity(unbound);
    for (auto& [rank, worker] : workers.all()) {
      if (worker.end) AskPeersToEnd();  // it could not be started
    }
  }

  /// Gives workers their cores; returns why not.
  std::string Bind(WorkerSetting& setting) {
    if (!setting.start.bind()) return "";
    for (const char* name : {"GOMP_CPU_AFFINITY", "KMP_AFFINITY", "OMP_PLACES"}) {
      if (std::getenv(name)) return std::string(name) + " is set: workers bind their threads themselves";
    }
    try {
      if (!topology) topology.emplace(Topology::OfThisMachine());
    } catch (const Error& error) {
      return error.what();
    }
    std::vector<std::string> near;
    for (const pb::RankPlace& place : setting.start.ranks()) {
      const auto gpu = setting.gpus.find(place.rank());
      near.push_back(gpu == setting.gpus.end() ? "" : gpu->second.pci);
    }
    const std::vector<Binding> bindings = topology->ShareOut(near);
    for (size_t i = 0; i < bindings.size(); ++i)
      setting.bindings[setting.start.ranks(static_cast<int>(i)).rank()] = bindings[i];
    setting.topology = &*topology;
    return "";
  }

  void TellAffinity(const std::string& unbound) {
    pb::AgentMessage message = Envelope();
    pb::Event* event = message.mutable_event();
    event->set_unix_ns(UnixNanoseconds());
    event->set_rank(-1);
    event->set_kind("affinity");
    event->set_message(unbound.empty() ? topology->Text() + workers.AffinityText() : "not bound: " + unbound);
    link.Send(std::move(message));
  }

  void StopWorkers(const pb::Stop& stop) {
    // Once is enough: to many programs a second SIGTERM means "at once".
    if (asked && asked->signal() == stop.signal() && asked->checkpoint() == stop.checkpoint()) return;
    asked = stop;
    pb::AgentToWorker message;
    *message.mutable_stop() = stop;
    for (auto& [rank, worker] : workers.all()) {
      if (worker.running()) server.Send(workers.KeyOf(worker), message);
    }
    workers.Signal(stop.signal());
  }

  /// One failed: the launcher will end the attempt, and will say so a round trip later. Those here need not wait for
  /// it.
  void AskPeersToEnd() {
    if (asked) return;  // an ending is under way, and may allow for a checkpoint
    pb::Stop stop;
    stop.set_signal(SIGTERM);
    StopWorkers(stop);
  }

  // ---- the workers

  Worker* Current(WorkerKey key) { return key.attempt == workers.attempt() ? workers.Find(key.rank) : nullptr; }

  void On(WorkerSaid& said) {
    Worker* worker = Current(said.worker);
    if (!worker) return;
    pb::WorkerMessage& message = said.message;
    if (message.has_hello()) {
      worker->linked = true;
      pb::AgentToWorker reply;
      *reply.mutable_assignment() = workers.AssignmentOf(*worker);
      server.Send(said.worker, std::move(reply));
      if (asked) {  // when it had no link yet
        pb::AgentToWorker stop;
        *stop.mutable_stop() = *asked;
        server.Send(said.worker, std::move(stop));
      }
    } else if (message.has_batch()) {
      worker->health = message.batch().health();
      worker->health.set_rank(said.worker.rank);
      worker->health_at = Clock::now();
      // Not to wait: the first step, and one with a checkpoint: who goes on from it must find the steps before it.
      bool at_once = !worker->stepped && message.batch().steps_size() > 0;
      worker->stepped = worker->stepped || at_once;
      for (auto& step : *message.mutable_batch()->mutable_steps()) {
        at_once = at_once || step.has_checkpoint_stall_ms();
        worker->steps.push_back(std::move(step));
      }
      if (at_once) next_batch = Clock::now();
    } else if (message.has_event()) {
      if (!worker->steps.empty()) SendHealth(*worker, Clock::now());  // what it did before
      pb::AgentMessage up = Envelope();
      *up.mutable_event() = message.event();
      up.mutable_event()->set_rank(static_cast<int32_t>(said.worker.rank));
      link.Send(std::move(up));
    } else if (message.has_stacks()) {
      questions.Answered(*worker, std::move(*message.mutable_stacks()));
    } else if (message.has_failure()) {
      worker->failure = message.failure();
    } else if (message.has_result()) {
      worker->result = message.result();
    }
  }

  void On(LinkClosed& closed) {
    if (Worker* worker = Current(closed.worker)) worker->linked = false;
  }

  void On(OutputEnded& ended) {
    if (Worker* worker = Current(ended.worker)) worker->output_open = false;
  }

  void On(ChildEnded& child) {
    Worker* worker = workers.FindProcess(child.pid);
    if (!worker) return;
    worker->end = child.end;
    worker->ended_at = Clock::now();
    worker->ended_unix_ns = UnixNanoseconds();
    if (child.end.signal != 0 || child.end.code != 0) AskPeersToEnd();
  }

  /// An ended worker is reported once everything that it said has been passed on.
  void ReportEnd(Worker& worker, Clock::time_point now) {
    if (!worker.end || worker.reported) return;
    bool settled = !worker.linked && !worker.output_open;
    if (!settled && now < worker.ended_at + kSettle) return;
    if (worker.output_open) output.Drop(workers.KeyOf(worker));
    worker.reported = true;
    worker.health.set_state("ended");
    SendHealth(worker, now);  // of this one alone: thousands may end at once
    pb::AgentMessage message = Envelope();
    pb::WorkerExit* exit = message.mutable_exit();
    exit->set_rank(worker.place.rank());
    exit->set_code(worker.end->code);
    exit->set_signal(worker.end->signal);
    exit->set_agent_signal(worker.agent_signal);
    exit->set_ended_unix_ns(worker.ended_unix_ns);
    if (worker.failure) *exit->mutable_failure() = *worker.failure;
    // A shell ends with 137 where SIGKILL ended what it ran.
    const bool killed = worker.end->signal == SIGKILL || worker.end->code == 128 + SIGKILL;
    if (killed && worker.agent_signal != SIGKILL && !worker.failure) {
      if (std::string why = memory.Explain(worker.pid); !why.empty()) exit->mutable_failure()->set_message(why);
    }
    if (worker.result) *exit->mutable_result() = *worker.result;
    link.Send(std::move(message));
  }

  // ---- upwards

  pb::AgentMessage Envelope() {
    pb::AgentMessage message;
    message.set_attempt(workers.attempt());
    return message;
  }

  void SendBatch(Clock::time_point now) {
    pb::AgentMessage message = Envelope();
    pb::HealthBatch* batch = message.mutable_health();
    for (auto& [rank, worker] : workers.all()) AddHealth(worker, now, *batch);
    link.Send(std::move(message));
  }

  void SendHealth(Worker& worker, Clock::time_point now) {
    pb::AgentMessage message = Envelope();
    AddHealth(worker, now, *message.mutable_health());
    link.Send(std::move(message));
  }

  void AddHealth(Worker& worker, Clock::time_point now, pb::HealthBatch& batch) {
    pb::WorkerHealth* health = batch.add_workers();
    *health = worker.health;
    if (worker.running() && workers.foreign()) {
      health->set_state("running");
      health->set_memory(ResidentBytes(worker.pid));
    }
    // Age since the worker last spoke: a stopped one shows.
    double age = std::chrono::duration<double>(now - worker.health_at).count();
    health->set_since_progress_seconds(health->since_progress_seconds() + age);
    health->set_silent_seconds(age);
    for (auto& step : worker.steps) *batch.add_steps() = std::move(step);
    worker.steps.clear();
  }

  /// On the output reader's thread. Lines of one stream go together: their order between the streams stays.
  void PassLines(WorkerKey worker, std::vector<OutputLine> lines) {
    for (size_t begin = 0; begin < lines.size();) {
      pb::AgentMessage message;
      message.set_attempt(worker.attempt);
      pb::LogLines* log = message.mutable_log();
      log->set_rank(worker.rank);
      log->set_error_stream(lines[begin].error_stream);
      size_t bytes = 0, i = begin;
      for (; i < lines.size() && lines[i].error_stream == lines[begin].error_stream && bytes < kMaxLogMessage; ++i) {
        bytes += lines[i].text.size();
        log->add_lines(std::move(lines[i].text));
      }
      begin = i;
      link.Send(std::move(message));
      link.WaitBelow(kMaxWaitingBytes);
    }
  }

  /// On the output reader's thread.
  void TellDropped(WorkerKey worker, uint64_t count) {
    pb::AgentMessage message;
    message.set_attempt(worker.attempt);
    pb::Event* event = message.mutable_event();
    event->set_unix_ns(UnixNanoseconds());
    event->set_rank(static_cast<int32_t>(worker.rank));
    event->set_kind("log_dropped");
    event->set_message("rank " + std::to_string(worker.rank) + " writes more than launch.log_lines_per_second: " +
                       std::to_string(count) + " lines dropped so far");
    link.Send(std::move(message));
  }
};

Agent::Agent(const pb::Bootstrap& bootstrap, const AgentOptions& options)
    : impl_(std::make_unique<Impl>(bootstrap, options)) {
  Wipe(*impl_->bootstrap.mutable_private_key());  // the link has it
}
Agent::~Agent() = default;
int Agent::Run() { return impl_->Run(); }

}  // namespace ds
