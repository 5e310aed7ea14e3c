#include "launcher/run/job_run.h"

#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>

#include "launcher/control/agents.h"
#include "launcher/nodes/node_fit.h"
#include "launcher/run/job_monitor.h"
#include "launcher/run/run_nodes.h"
#include "launcher/run/run_output.h"
#include "launcher/run/run_settings.h"
#include "launcher/run/start_message.h"
#include "runtime/base/end_within.h"
#include "runtime/base/error.h"
#include "runtime/base/start_limits.h"
#include "runtime/base/text.h"
#include "runtime/plan/manifest.h"
#include "runtime/run/prepare.h"
#include "runtime/run/run_record.h"

namespace ds {
namespace {

namespace pb = ::deepshard::v1;
namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr auto kPatienceWithScreen = std::chrono::seconds(3);  // of a job that a signal ended
constexpr auto kTick = std::chrono::milliseconds(100);
constexpr auto kBeatEvery = std::chrono::seconds(1);
constexpr double kEndSeconds = 5;  // after the last line: gRPC may not come to an end

/// Each rank's log file and each agent's pipe and connection need a descriptor.
void RaiseOpenFileLimit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

class Run {
 public:
  explicit Run(const Job& job)
      : begun_(job),
        job_(job),
        agents_(AgentOptionsOf(job)),
        plans_(PlanRoles(job, {}, DeviceExpected(job)).plans),
        output_(job, [this](const std::string& why) { CannotWrite(why); }),
        monitor_(MonitorSettingsWithRefit(), HostNamesOf(job), MonitorRanksOf(job)),
        nodes_(begun_, agents_, output_) {}

  int Execute() {
    output_.screen().Notice("run " + output_.directory().path().string() + ": " + Count(job_.world(), "rank") + " on " +
                            Count(static_cast<int64_t>(job_.Nodes().size()), "node") +
                            (job_.Nodes().size() < job_.hosts.size() ? ", the others are spares" : ""));
    output_.Guarded([&] { WriteStart(); });
    if (!finished_) Told([&] { BringUp(); });
    if (!finished_) Perform(monitor_.Begin(Clock::now()));
    while (!finished_) Once();
    output_.screen().Close();
    agents_.EndAll();
    // Before anything is waited for that a reader of the screen may never do.
    const int code = output_.WriteEnd(job_, monitor_.outcome());
    if (!Await([this] { return output_.screen().Close(); }) || !Await(ErrorsAreRead))
      EndWithin(kEndSeconds, code);  // the last words may block
    output_.TellEnd(job_, monitor_.outcome(), code);
    return code;
  }

 private:
  /// Until it is done, or nobody wants it any more: whoever reads the screen may have stopped. Returns whether it is.
  bool Await(const std::function<bool()>& done) {
    const bool told_to_end = monitor_.outcome().cause && monitor_.outcome().cause->kind == "signal";
    const Clock::time_point until = told_to_end ? Clock::now() + kPatienceWithScreen : Clock::time_point::max();
    while (!done()) {
      if (Clock::now() >= until) return false;
      const auto event = agents_.Next(Clock::now() + std::chrono::milliseconds(2));
      if (event && std::holds_alternative<SignalArrived>(*event)) return false;
    }
    return true;
  }

  // ---- before the workers

  void WriteStart() {
    if (!job_.foreign()) WriteSpec(output_.directory(), job_.spec, job_.machine);
    WritePlans();
    const LaunchConfig& launch = job_.spec.launch;
    output_.directory().CreateLogs(job_.world(), job_.logged, {launch.log_rotate, launch.log_keep});
    Record("bootstrap", "", -1, agents_.bootstrap().Text());
    for (const std::string& why : job_.resume_fallbacks) Record("resume_fallback", "", -1, why);
    if (!job_.machine_changed.empty()) Record("machine", "", -1, job_.machine_changed);
  }

  void BringUp() {
    const std::optional<Cause> trouble = nodes_.BringUp();
    if (trouble && !nodes_.seen()) return Stop(*trouble);
    PlannedRoles planned;
    try {
      planned = nodes_.PlansFor(job_);
    } catch (const UsageError& error) {
      // What no node could run comes before what these nodes lack: both are told.
      Cause misfit{"preflight", "", -1, 0, static_cast<int>(ExitCode::usage), error.what()};
      Record("preflight", "", -1, misfit.message);
      if (trouble) misfit.message += "; besides, " + trouble->message;
      return Stop(misfit);
    }
    if (trouble) return Stop(*trouble);
    plans_ = std::move(planned.plans);
    if (planned.placement.empty() && nodes_.OnGpus() == (DeviceExpected(job_) == DeviceKind::cuda)) return;
    job_.spec = std::move(planned.spec);
    output_.Guarded([&] {
      if (!job_.foreign()) output_.directory().Write("job.yaml", ToYaml(job_.spec));
      WritePlans();
    });
    TellPlacement(planned.placement);
  }

  void TellPlacement(const std::vector<std::string>& placement) {
    for (const std::string& why : placement) Record("placement", "", -1, why);
  }

  // ---- fewer nodes

  MonitorSettings MonitorSettingsWithRefit() {
    MonitorSettings settings = MonitorSettingsOf(job_, agents_.SeesAgentsEnd());
    if (job_.spec.launch.min_nodes) settings.refit = [this](const std::vector<int>& left) { return Refit(left); };
    return settings;
  }

  /// The job on the nodes that are left, planned anew; kept for the next start.
  MonitorRefit Refit(const std::vector<int>& left) {
    try {
      NodeFit fit = FitToNodes(begun_, left, *begun_.spec.launch.min_nodes);
      Job fitted = job_;
      fitted.spec = fit.spec;
      fitted.ranks = fit.ranks;
      fit_plans_ = nodes_.PlansFor(fitted);
      fit.spec = fit_plans_.spec;
      fit_ = std::move(fit);
    } catch (const UsageError& error) {
      return {{}, error.what()};
    }
    MonitorRefit refit{{}, fit_->text};
    for (const RankEntry& rank : fit_->ranks) refit.ranks.push_back({rank.node});
    return refit;
  }

  void TakeFit(int64_t attempt) {
    if (!fit_) return;
    job_.spec = fit_->spec;
    job_.ranks = fit_->ranks;
    plans_ = std::move(fit_plans_.plans);
    fit_.reset();
    output_.Relayout(job_);
    TellPlacement(fit_plans_.placement);
    if (job_.foreign()) return;
    const std::string name = "attempt-" + std::to_string(attempt);
    output_.Guarded([&] {
      output_.directory().Write("job-" + name + ".yaml", ToYaml(job_.spec));
      for (const auto& [rank, plan] : plans_)
        output_.directory().Write("plan/" + name + "/rank-" + std::to_string(rank) + ".txt", plan);
    });
  }

  void WritePlans() {
    for (const auto& [rank, plan] : plans_)
      output_.directory().Write("plan/rank-" + std::to_string(rank) + ".txt", plan);
  }

  void Stop(const Cause& cause) {
    if (cause.kind == "signal") return Perform(monitor_.Signalled(cause.signal, Clock::now()));
    Perform(monitor_.Failed(cause, Clock::now()));
  }

  // ---- the loop

  void Once() {
    std::optional<LaunchEvent> event = agents_.Next(std::min(next_tick_, Clock::now() + kTick));
    Clock::time_point now = Clock::now();
    if (event) std::visit([&](auto& e) { output_.Guarded([&] { On(e, now); }); }, *event);
    if (now >= next_tick_) {
      for (uint32_t node = 0; node < job_.hosts.size(); ++node) {
        Perform(monitor_.LinkSeen(static_cast<int>(node), agents_.Unacknowledged(node, now), now));
      }
      Perform(monitor_.Tick(now));
      next_tick_ = now + kTick;
    }
    if (now >= next_beat_) {
      pb::LauncherMessage beat = Envelope();
      beat.mutable_beat();
      agents_.SendAll(beat);
      output_.Guarded([&] { output_.directory().CheckThere(); });
      next_beat_ = now + kBeatEvery;
    }
    output_.screen().Refresh(now);
  }

  void On(SignalArrived& arrived, Clock::time_point now) { Perform(monitor_.Signalled(arrived.signal, now)); }

  void On(AgentEnded& ended, Clock::time_point now) {
    Perform(monitor_.AgentEnded(static_cast<int>(ended.node), ended.end.code, ended.end.signal, now, ended.text));
  }

  void On(ControlEvent& event, Clock::time_point now) {
    if (event.kind == ControlEvent::Kind::closed) Perform(monitor_.AgentClosed(static_cast<int>(event.node), now));
    if (event.kind != ControlEvent::Kind::message) return;
    agents_.ReadNext(event.node);
    Perform(monitor_.AgentHeard(static_cast<int>(event.node), now));
    pb::AgentMessage& message = *event.message;
    if (message.attempt() != monitor_.attempt()) return;  // of workers of the past
    if (message.has_health()) OnHealth(event.node, message.health(), now);
    if (message.has_log()) OnLog(event.node, message.log());
    if (message.has_event()) OnEvent(event.node, message.event());
    if (message.has_stacks()) OnStacks(event.node, message.stacks());
    if (message.has_exit()) OnExit(event.node, message.exit(), now);
  }

  /// Whether `rank` is one of the node's: an agent speaks for its own workers only.
  bool Owns(uint32_t node, int64_t rank) const {
    return rank >= 0 && rank < job_.world() && job_.ranks[static_cast<size_t>(rank)].node == static_cast<int>(node);
  }

  void OnHealth(uint32_t node, const pb::HealthBatch& batch, Clock::time_point now) {
    for (const pb::StepRecord& record : batch.steps()) {
      output_.record().Add(record);
      output_.directory().Metric(MetricLine(record));
      output_.screen().Step(record);
    }
    for (const pb::WorkerHealth& health : batch.workers()) {
      if (!Owns(node, health.rank())) continue;
      WorkerBeat beat{static_cast<int>(health.rank()), health.step(), health.state(), health.action()};
      if (health.has_action_index()) beat.action_index = health.action_index();
      beat.waits = health.waits();
      beat.since_progress_seconds = health.since_progress_seconds();
      beat.silent_seconds = health.silent_seconds();
      Perform(monitor_.WorkerHeard(beat, now));
      output_.screen().Health(health);
    }
  }

  void OnLog(uint32_t node, const pb::LogLines& log) {
    if (!Owns(node, log.rank())) return;
    int rank = static_cast<int>(log.rank());
    for (const std::string& line : log.lines()) {
      output_.Line(rank, log.error_stream(), line, job_.shown.Has(rank));
    }
  }

  void OnEvent(uint32_t node, const pb::Event& event) {
    if (event.rank() >= 0 && !Owns(node, event.rank())) return;
    output_.directory().Event(event.unix_ns(), agents_.host(node), event.rank(), monitor_.attempt(), event.kind(),
                              event.message());
    // A line a node, which nobody waits for: it is in the reports.
    if (event.kind() == "affinity") return nodes_.WriteReport(node, event.message());
    output_.screen().Notice(event.kind() + ": " + event.message());
  }

  /// The newest answer stays.
  void OnStacks(uint32_t node, const pb::Stacks& stacks) {
    if (!Owns(node, stacks.rank())) return;
    const int rank = static_cast<int>(stacks.rank());
    output_.directory().Write(
        "stacks/rank-" + std::to_string(rank) + "-attempt-" + std::to_string(monitor_.attempt()) + ".txt",
        "rank " + std::to_string(rank) + " on " + agents_.host(node) + ", attempt " +
            std::to_string(monitor_.attempt()) +
            "\naction of the plan: " + (stacks.action().empty() ? "none" : stacks.action()) + "\n\n" + stacks.text());
  }

  void OnExit(uint32_t node, const pb::WorkerExit& exit, Clock::time_point now) {
    if (!Owns(node, exit.rank())) return;
    if (exit.rank() == 0 && exit.has_result()) output_.record().SetResult(exit.result());
    WorkerEnd end;
    end.rank = static_cast<int>(exit.rank());
    end.code = exit.code();
    end.signal = exit.signal();
    end.agent_signal = exit.agent_signal();
    bool own_failure = exit.has_failure() && !exit.failure().victim();
    end.victim = !job_.foreign() && exit.signal() == 0 && exit.code() == kVictimExitCode && !own_failure;
    end.completed = exit.has_result() && !exit.result().stopped() && exit.code() == 0 && exit.signal() == 0;
    end.stopped = exit.has_result() && exit.result().stopped();
    end.stop_signal = exit.agent_signal() == 0 ? exit.result().stop_signal() : 0;
    end.message = exit.failure().message();
    end.kind = exit.failure().kind();
    const int64_t ended = exit.failure().found_unix_ns() != 0 ? exit.failure().found_unix_ns() : exit.ended_unix_ns();
    if (ended != 0) end.ended_ns = ended - agents_.clock_offsets()[node];
    Perform(monitor_.WorkerEnded(end, now));
  }

  // ---- what the monitor decided

  void Perform(const JobMonitor::Actions& actions) {
    for (const MonitorAction& action : actions) {
      pb::LauncherMessage message = Envelope();
      switch (action.kind) {
        case MonitorAction::Kind::start_workers:
          StartWorkers(action.attempt);
          break;
        case MonitorAction::Kind::stop_workers:
          message.mutable_stop()->set_signal(action.signal);
          message.mutable_stop()->set_checkpoint(action.checkpoint);
          agents_.SendAll(message);
          break;
        case MonitorAction::Kind::pass_signal:
          message.mutable_pass()->set_signal(action.signal);
          agents_.SendAll(message);
          break;
        case MonitorAction::Kind::kill_workers:
          message.mutable_kill();
          agents_.SendAll(message);
          break;
        case MonitorAction::Kind::ask_stacks:
          message.mutable_ask_stacks();
          agents_.SendAll(message);
          break;
        case MonitorAction::Kind::drop_agent:
          agents_.Drop(static_cast<uint32_t>(action.node));
          break;
        case MonitorAction::Kind::record:
          output_.Record(action.event, action.host, action.rank, action.text, action.attempt);
          break;
        case MonitorAction::Kind::finish:
          finished_ = true;
          break;
      }
    }
  }

  pb::LauncherMessage Envelope() const {
    pb::LauncherMessage message;
    message.set_attempt(monitor_.attempt());
    return message;
  }

  void StartWorkers(int64_t attempt) {
    agents_.BeginAttempt(attempt);
    TakeFit(attempt);
    output_.BeginAttempt(attempt);
    std::string resume = job_.resume;
    if (attempt > 1 && !job_.foreign()) {
      std::vector<std::string> damaged;
      if (auto newest = NewestComplete(output_.directory().path(), &damaged)) resume = newest->string();
      for (const std::string& why : damaged) Record("resume_fallback", "", -1, why);
      // What is resumed, the workers tell: they know the step.
      if (resume.empty()) Record("resume", "", -1, "no checkpoint yet: starting anew");
    }
    const std::vector<int> nodes = job_.Nodes();
    for (size_t i = 0; i < nodes.size(); ++i) {
      pb::LauncherMessage message = Envelope();
      FillStart(job_, nodes_.joined(), output_.directory(), static_cast<uint32_t>(nodes[i]), i, resume,
                *message.mutable_start());
      agents_.Send(static_cast<uint32_t>(nodes[i]), std::move(message));
    }
    Record("start", "", -1, "attempt " + std::to_string(attempt) + ": " + Count(job_.world(), "worker"));
  }

  // ---- files

  void Record(const std::string& kind, const std::string& host, int rank, const std::string& text) {
    output_.Record(kind, host, rank, text);
  }

  void CannotWrite(const std::string& why) {
    Cause cause{"launcher", "", -1, 0, 0, "the run directory cannot be written: " + why};
    Perform(monitor_.Failed(cause, Clock::now()));
  }

  /// What stops a start is the job's cause, in its files too.
  template <class Body>
  void Told(Body body) {
    int code = static_cast<int>(ExitCode::failure);
    std::string why;
    try {
      return body();
    } catch (const Error& error) {
      code = static_cast<int>(error.code());
      why = error.what();
    } catch (const std::exception& error) {
      why = error.what();
    }
    Stop({"launcher", "", -1, 0, code, why});
  }

  const Job& begun_;            ///< as it was begun
  Job job_;                     ///< with the spec and the ranks of this attempt
  std::optional<NodeFit> fit_;  ///< of the next attempt, where nodes were lost
  PlannedRoles fit_plans_;
  Agents agents_;
  std::vector<std::pair<int, std::string>> plans_;
  RunOutput output_;
  JobMonitor monitor_;
  RunNodes nodes_;
  Clock::time_point next_tick_ = Clock::now(), next_beat_ = Clock::now();
  bool finished_ = false;
};

}  // namespace

int RunJob(const Job& job) {
  RaiseOpenFileLimit();
  ::signal(SIGXFSZ, SIG_IGN);  // a file beyond `ulimit -f` is a failed write, with a reason, not a death
  CheckStartLimits("ds-launch");
  auto run = std::make_unique<Run>(job);
  const int code = run->Execute();
  EndWithin(kEndSeconds, code);
  run.reset();
  return code;
}

}  // namespace ds
