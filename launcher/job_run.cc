#include "launcher/job_run.h"

#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>

#include "launcher/agents.h"
#include "launcher/bind.h"
#include "launcher/credentials.h"
#include "launcher/data_network.h"
#include "launcher/job_monitor.h"
#include "launcher/node_fit.h"
#include "launcher/node_report.h"
#include "launcher/preflight.h"
#include "launcher/preflight_needs.h"
#include "launcher/reachability.h"
#include "launcher/screen.h"
#include "runtime/base/clock.h"
#include "runtime/base/end_within.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/base/random.h"
#include "runtime/base/start_limits.h"
#include "runtime/base/text.h"
#include "runtime/plan/manifest.h"
#include "runtime/run/prepare.h"
#include "runtime/run/run_directory.h"
#include "runtime/run/run_record.h"

namespace ds {
namespace {

namespace pb = ::deepshard::v1;
namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr auto kPatienceWithScreen = std::chrono::seconds(3);  // of a job that a signal ended
constexpr auto kTick = std::chrono::milliseconds(100);
constexpr auto kBeatEvery = std::chrono::seconds(1);
constexpr size_t kLastLines = 20;          // of each rank, for the final report
constexpr size_t kLongestLastLine = 2000;  // bytes
constexpr double kEndSeconds = 5;          // after the last line: gRPC may not come to an end
constexpr const char* kTokenFile = ".token";

MonitorSettings SettingsOf(const Job& job, bool sees_agents_end) {
  const LaunchConfig& launch = job.spec.launch;
  MonitorSettings settings;
  settings.restarts = launch.restarts;
  settings.grace_seconds = launch.grace_seconds;
  if (job.foreign()) settings.failure_grace_seconds = launch.grace_seconds;
  settings.lease_seconds = launch.lease_seconds;
  settings.suspect_seconds = launch.suspect_seconds;
  settings.progress_seconds = job.foreign() ? 0 : launch.progress_seconds;
  settings.checkpoint_on_signal = job.spec.checkpoint.on_signal;
  settings.sees_agents_end = sees_agents_end;
  settings.programs = job.foreign();
  return settings;
}

/// As torchrun counts them: of any cause.
int64_t MostRestarts(const JobSpec& spec) {
  const RestartBudgets& budgets = spec.launch.restarts;
  return budgets.by_cause ? budgets.worker + budgets.no_progress + budgets.node.value_or(0) : budgets.any;
}

std::vector<MonitorRank> MonitorRanks(const Job& job) {
  std::vector<MonitorRank> ranks;
  for (const RankEntry& rank : job.ranks) ranks.push_back({rank.node});
  return ranks;
}

std::vector<std::string> HostNames(const Job& job) {
  std::vector<std::string> names;
  for (const HostSlots& host : job.hosts) names.push_back(host.host);
  return names;
}

ScreenJob ScreenJobOf(const Job& job, const RunDirectory& directory) {
  ScreenJob screen;
  screen.name = job.spec.name;
  screen.run_directory = directory.path().string();
  for (const RankEntry& rank : job.ranks) {
    screen.rank_hosts.push_back(job.hosts[static_cast<size_t>(rank.node)].host);
  }
  screen.steps = job.foreign() ? 0 : job.spec.training.steps;
  screen.log_every = job.spec.training.log_every;
  return screen;
}

/// Each rank's log file and each agent's pipe and connection need a descriptor.
void RaiseOpenFileLimit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

Agents::Options AgentOptions(const Job& job) {
  Agents::Options options;
  options.bootstrap = job.bootstrap();
  options.settings = BootstrapSettingsOf(job);
  options.hosts = job.hosts;
  options.interface = job.spec.launch.interface;
  options.contain = job.spec.launch.contain;
  options.skip_checks = job.spec.launch.skip_checks;
  return options;
}

RunDirectory MakeRunDirectory(const Job& job) {
  const fs::path output = (fs::path(job.working_directory) / job.options.output).lexically_normal();
  if (RepairUtf8(output.string()) != output.string())
    throw UsageError("--output " + Shown(output.string()) +
                     ": its path is not UTF-8, and JSON files name it; choose another");
  if (Shown(output.string(), output.string().size()) != output.string())
    throw UsageError("--output " + Shown(output.string(), 400) +
                     ": its path has a control character (a newline, say), and lines of logs name it; choose another");
  try {
    return RunDirectory(job.options.output, job.spec.name);
  } catch (const std::exception& error) {  // std::filesystem's too: the working directory may be gone
    throw UsageError("--output " + job.options.output + ": " + error.what() + "; choose a folder that can be written");
  }
}

class Run {
 public:
  explicit Run(const Job& job)
      : begun_(job),
        job_(job),
        agents_(AgentOptions(job)),
        plans_(PlanRoles(job, 0, DeviceExpected(job))),
        directory_(MakeRunDirectory(job)),
        monitor_(MonitorSettingsWithRefit(), HostNames(job), MonitorRanks(job)),
        screen_(MakeScreen(ScreenJobOf(job, directory_))) {}

  int Execute() {
    screen_->Notice("run " + directory_.path().string() + ": " + Count(job_.world(), "rank") + " on " +
                    Count(static_cast<int64_t>(job_.Nodes().size()), "node") +
                    (job_.Nodes().size() < job_.hosts.size() ? ", the others are spares" : ""));
    Guarded([&] { WriteStart(); });
    if (!finished_) Told([&] { BringUp(); });
    if (!finished_) Perform(monitor_.Begin(Clock::now()));
    while (!finished_) Once();
    screen_->Close();
    agents_.EndAll();
    const int code = WriteEnd();  // before anything is waited for that a reader of the screen may never do
    if (!Await([this] { return screen_->Close(); }) || !Await(ErrorsAreRead))
      EndWithin(kEndSeconds, code);  // the last words may block
    TellEnd(code);
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
    if (!job_.foreign()) WriteSpec(directory_, job_.spec, job_.machine);
    WritePlans();
    const LaunchConfig& launch = job_.spec.launch;
    directory_.CreateLogs(job_.world(), job_.logged, {launch.log_rotate, launch.log_keep});
    directory_.Write(kTokenFile, token_);
    Record("bootstrap", "", -1, agents_.bootstrap().Text());
    for (const std::string& why : job_.resume_fallbacks) Record("resume_fallback", "", -1, why);
    if (!job_.machine_changed.empty()) Record("machine", "", -1, job_.machine_changed);
  }

  void BringUp() {
    agents_.SetToken((directory_.path() / kTokenFile).string(), token_);
    std::optional<Cause> trouble = agents_.BringUp();
    if (trouble && trouble->kind == "preflight") {
      for (const Cause& found : agents_.troubles()) Record("preflight", found.host, -1, found.message);
    }
    if (!trouble) trouble = CheckNodes();
    std::error_code ignored;
    fs::remove(directory_.path() / kTokenFile, ignored);
    if (trouble) return Stop(*trouble);
    shares_ = ShareMachines(job_.hosts, agents_.facts());
    if (std::string why = CannotBind(job_, shares_); !why.empty()) Record("affinity", "", -1, why);
    CheckMemory();
  }

  /// The preflight, once every agent has joined. The cause where the job cannot run: the first node's, of all that are
  /// recorded.
  std::optional<Cause> CheckNodes() {
    const PreflightNeeds needs = NeedsOf(job_, directory_.path().string());
    const auto& skip = needs.skip;
    ProbeResults probed;
    ChooseAddresses();
    if (!data_network_.troubles.empty())
      probed.outcomes = OutcomesOf(data_network_, job_.hosts);
    else if (job_.hosts.size() > 1 && std::find(skip.begin(), skip.end(), "reachability") == skip.end())
      probed =
          ProbeNodes(agents_, job_.hosts.size(), [this](uint32_t node) { return data_network_.nodes[node].address; });
    if (probed.cause) return probed.cause;
    const auto results = JudgeNodes(job_.hosts, agents_.facts(), agents_.clock_offsets(), probed.outcomes, needs);
    checks_ = results;
    Guarded([&] { WriteReports(); });
    if (!skip.empty()) {
      record_.SetSkippedChecks(skip);
      Record("preflight_skipped", "", -1, "checks that were not made: " + Join(skip, ", "));
    }
    std::optional<Cause> cause;
    for (size_t node = 0; node < results.size(); ++node) {
      for (const CheckResult& result : results[node]) {
        if (result.status != CheckStatus::failed && result.status != CheckStatus::warning) continue;
        const bool failed = result.status == CheckStatus::failed;
        const std::string& host = job_.hosts[node].host;
        const std::string text = result.name + " on " + host + ": " + result.text;
        RecordQuietly(failed ? "preflight" : "preflight_warning", host, -1, text);
        if (failed && !cause) cause = Cause{"preflight", host, -1, 0, static_cast<int>(ExitCode::preflight), text};
      }
    }
    rlimit files{};
    if (::getrlimit(RLIMIT_NOFILE, &files) == 0 && std::find(skip.begin(), skip.end(), "open-files") == skip.end()) {
      if (std::string why = LauncherFilesTrouble(job_.world(), job_.hosts.size(), files.rlim_max); !why.empty()) {
        Record("preflight", "", -1, "open-files: " + why);
        if (!cause) cause = Cause{"preflight", "", -1, 0, static_cast<int>(ExitCode::preflight), "open-files: " + why};
      }
    }
    const std::vector<std::string> lines = PreflightLines(job_.hosts, results);
    for (const std::string& line : lines) screen_->Notice(line);
    if (!cause && !data_network_.troubles.empty()) {  // its check is skipped, and ranks have no address all the same
      const PreflightTrouble& first = data_network_.troubles[0];
      cause = Cause{"preflight", first.host, -1, 0, static_cast<int>(ExitCode::preflight), first.message};
    }
    if (lines.empty() && !cause) screen_->Notice(PreflightSummary(results));
    return cause;
  }

  /// Nodes that have no address of the wanted network fail the check `reachability`.
  void ChooseAddresses() {
    const std::string& wanted = job_.spec.launch.interface;
    data_network_ = ChooseDataNetwork(job_.hosts, agents_.facts(), wanted, agents_.OnThisMachine());
    if (!data_network_.troubles.empty() || (agents_.OnThisMachine() && wanted == "auto")) return;
    Record("network", "", -1,
           "control: " + agents_.network().Reach() + " (" + agents_.network().reason +
               "); data: " + data_network_.Text(job_.hosts));
  }

  void WriteReports() {
    for (uint32_t node = 0; node < job_.hosts.size(); ++node) {
      WriteReport(node, "");
    }
  }
  void WriteReport(uint32_t node, const std::string& affinity) {
    NodeReport report{agents_.host(node), agents_.facts()[node], agents_.clock_offsets()[node], affinity, {}};
    if (node < checks_.size()) report.checks = checks_[node];
    directory_.Write("report/" + report.host + ".json", ToJson(report) + "\n");
  }

  /// The plans against the memory of the node that has least of it for each worker.
  void CheckMemory() {
    try {
      plans_ = PlansFor(job_);
    } catch (const UsageError& error) {
      return Stop({"preflight", "", -1, 0, static_cast<int>(ExitCode::usage), error.what()});
    }
    if (OnGpus() != (DeviceExpected(job_) == DeviceKind::cuda)) Guarded([&] { WritePlans(); });
  }

  /// The nodes are of one kind (CheckNodes): what the first has, all have.
  bool OnGpus() const {
    return !job_.foreign() && job_.spec.training.device != DeviceChoice::cpu && agents_.facts()[0].gpus_size() > 0;
  }

  /// Throws UsageError where they do not fit.
  std::vector<std::pair<int, std::string>> PlansFor(const Job& job) const {
    const std::vector<int> nodes = job.Nodes();
    std::map<std::string, int> workers;
    for (const RankEntry& rank : job.ranks) ++workers[agents_.facts()[static_cast<size_t>(rank.node)].boot_id()];
    int64_t least = INT64_MAX;
    for (int node : nodes) {
      const pb::NodeFacts& facts = agents_.facts()[static_cast<size_t>(node)];
      if (!OnGpus()) least = std::min(least, facts.memory() / workers[facts.boot_id()]);
      for (const pb::NodeFacts::Gpu& gpu : facts.gpus())
        if (OnGpus()) least = std::min<int64_t>(least, gpu.memory_free());
    }
    return PlanRoles(job, least, OnGpus() ? DeviceKind::cuda : DeviceKind::cpu);
  }

  // ---- fewer nodes

  MonitorSettings MonitorSettingsWithRefit() {
    MonitorSettings settings = SettingsOf(job_, agents_.SeesAgentsEnd());
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
      fit_plans_ = PlansFor(fitted);
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
    plans_ = std::move(fit_plans_);
    fit_.reset();
    screen_->Relayout(ScreenJobOf(job_, directory_));
    if (job_.foreign()) return;
    const std::string name = "attempt-" + std::to_string(attempt);
    Guarded([&] {
      directory_.Write("job-" + name + ".yaml", ToYaml(job_.spec));
      for (const auto& [rank, plan] : plans_)
        directory_.Write("plan/" + name + "/rank-" + std::to_string(rank) + ".txt", plan);
    });
  }

  void WritePlans() {
    for (const auto& [rank, plan] : plans_) directory_.Write("plan/rank-" + std::to_string(rank) + ".txt", plan);
  }

  void Stop(const Cause& cause) {
    if (cause.kind == "signal") return Perform(monitor_.Signalled(cause.signal, Clock::now()));
    Perform(monitor_.Failed(cause, Clock::now()));
  }

  // ---- the loop

  void Once() {
    std::optional<LaunchEvent> event = agents_.Next(std::min(next_tick_, Clock::now() + kTick));
    Clock::time_point now = Clock::now();
    if (event) std::visit([&](auto& e) { Guarded([&] { On(e, now); }); }, *event);
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
      next_beat_ = now + kBeatEvery;
    }
    screen_->Refresh(now);
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
      record_.Add(record);
      directory_.Metric(MetricLine(record));
      screen_->Step(record);
    }
    for (const pb::WorkerHealth& health : batch.workers()) {
      if (!Owns(node, health.rank())) continue;
      WorkerBeat beat{static_cast<int>(health.rank()), health.step(), health.state(), health.action()};
      if (health.has_action_index()) beat.action_index = health.action_index();
      beat.waits = health.waits();
      beat.since_progress_seconds = health.since_progress_seconds();
      beat.silent_seconds = health.silent_seconds();
      Perform(monitor_.WorkerHeard(beat, now));
      screen_->Health(health);
    }
  }

  void OnLog(uint32_t node, const pb::LogLines& log) {
    if (!Owns(node, log.rank())) return;
    int rank = static_cast<int>(log.rank());
    for (const std::string& line : log.lines()) {
      directory_.Log(rank, line);
      std::deque<std::string>& last = last_lines_[rank];
      last.push_back(line);
      if (last.size() > kLastLines) last.pop_front();
      if (job_.shown.Has(rank)) screen_->Line(rank, log.error_stream(), line);
    }
  }

  void OnEvent(uint32_t node, const pb::Event& event) {
    if (event.rank() >= 0 && !Owns(node, event.rank())) return;
    directory_.Event(event.unix_ns(), agents_.host(node), event.rank(), monitor_.attempt(), event.kind(),
                     event.message());
    // A line a node, which nobody waits for: it is in the reports.
    if (event.kind() == "affinity") return WriteReport(node, event.message());
    screen_->Notice(event.kind() + ": " + event.message());
  }

  /// The newest answer stays.
  void OnStacks(uint32_t node, const pb::Stacks& stacks) {
    if (!Owns(node, stacks.rank())) return;
    const int rank = static_cast<int>(stacks.rank());
    directory_.Write("stacks/rank-" + std::to_string(rank) + "-attempt-" + std::to_string(monitor_.attempt()) + ".txt",
                     "rank " + std::to_string(rank) + " on " + agents_.host(node) + ", attempt " +
                         std::to_string(monitor_.attempt()) + "\naction of the plan: " +
                         (stacks.action().empty() ? "none" : stacks.action()) + "\n\n" + stacks.text());
  }

  void OnExit(uint32_t node, const pb::WorkerExit& exit, Clock::time_point now) {
    if (!Owns(node, exit.rank())) return;
    if (exit.rank() == 0 && exit.has_result()) record_.SetResult(exit.result());
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
          Record(action.event, action.host, action.rank, action.text, action.attempt);
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
    last_lines_.clear();  // how the attempt before ended is not how this one does
    std::string resume = job_.resume;
    if (attempt > 1 && !job_.foreign()) {
      std::vector<std::string> damaged;
      if (auto newest = NewestComplete(directory_.path(), &damaged)) resume = newest->string();
      for (const std::string& why : damaged) Record("resume_fallback", "", -1, why);
      // What is resumed, the workers tell: they know the step.
      if (resume.empty()) Record("resume", "", -1, "no checkpoint yet: starting anew");
    }
    const std::vector<int> nodes = job_.Nodes();
    for (size_t i = 0; i < nodes.size(); ++i) {
      pb::LauncherMessage message = Envelope();
      FillStart(static_cast<uint32_t>(nodes[i]), i, resume, *message.mutable_start());
      agents_.Send(static_cast<uint32_t>(nodes[i]), std::move(message));
    }
    Record("start", "", -1, "attempt " + std::to_string(attempt) + ": " + Count(job_.world(), "worker"));
  }

  /// `group`: the node's place among those that have ranks.
  void FillStart(uint32_t node, size_t group, const std::string& resume, pb::Start& start) const {
    const auto first = static_cast<uint32_t>(job_.ranks[0].node);
    const NodeShare& share = shares_[node];
    const bool gpus = agents_.facts()[node].gpus_size() > 0 && job_.spec.training.device != DeviceChoice::cpu;
    for (const RankEntry& rank : job_.ranks) {
      if (rank.node != static_cast<int>(node)) continue;
      pb::RankPlace* place = start.add_ranks();
      place->set_rank(static_cast<uint32_t>(rank.rank));
      place->set_local_rank(static_cast<uint32_t>(rank.local_rank));
      place->set_slot(static_cast<uint32_t>(rank.slot));
      place->set_gpu(gpus ? share.first_gpu + rank.slot : -1);
    }
    start.set_world_size(static_cast<uint32_t>(job_.world()));
    start.set_node_count(static_cast<uint32_t>(job_.Nodes().size()));
    start.set_threads(static_cast<uint32_t>(share.threads));
    start.set_interface_address(data_network_.nodes[node].address);
    start.set_bind(Binds(job_, share, start.ranks_size()));
    start.set_log_lines_per_second(job_.spec.launch.log_lines_per_second);
    start.set_run_directory(directory_.path().string());
    start.set_run_id(directory_.run_id());
    start.set_resume(resume);
    if (!job_.foreign()) start.set_spec(ToYaml(job_.spec));
    if (job_.machine) start.set_machine(ToYaml(*job_.machine));
    for (const std::string& argument : job_.program) start.add_program(argument);
    start.set_working_directory(job_.working_directory);
    for (const VariableSource& source : job_.variable_sources) {
      for (const auto& [name, value] : source.variables) AddVariable(start, name, value);
    }
    if (job_.foreign()) {
      AddVariable(start, "TORCHELASTIC_MAX_RESTARTS", std::to_string(MostRestarts(job_.spec)));
      AddVariable(start, "GROUP_RANK", std::to_string(group));
      AddVariable(start, "CROSS_RANK", std::to_string(group));  // DeepSpeed's name for it
    }
    const LaunchOptions& options = job_.options;
    start.set_master_address(options.master_address.empty() ? data_network_.nodes[first].address
                                                            : options.master_address);
    start.set_master_port(options.master_port != 0 ? static_cast<uint32_t>(options.master_port)
                                                   : agents_.facts()[first].free_port());
  }

  static void AddVariable(pb::Start& start, const std::string& name, const std::string& value) {
    pb::EnvironmentVariable* variable = start.add_environment();
    variable->set_name(name);
    variable->set_value(value);
  }

  // ---- files

  void Record(const std::string& kind, const std::string& host, int rank, const std::string& text) {
    Record(kind, host, rank, text, monitor_.attempt());
  }
  void RecordQuietly(const std::string& kind, const std::string& host, int rank, const std::string& text) {
    if (!files_fail_) Guarded([&] { directory_.Event(UnixNanoseconds(), host, rank, monitor_.attempt(), kind, text); });
  }
  void Record(const std::string& kind, const std::string& host, int rank, const std::string& text, int64_t attempt) {
    if (!files_fail_) Guarded([&] { directory_.Event(UnixNanoseconds(), host, rank, attempt, kind, text); });
    if (kind != "start") screen_->Notice(kind + ": " + text);
  }

  /// A run whose files cannot be written ends: it would lose what it is run for.
  template <class Body>
  void Guarded(Body body) {
    try {
      body();
    } catch (const Error& error) {
      if (std::exchange(files_fail_, true)) return;
      Cause cause{"launcher", "", -1, 0, 0, std::string("the run directory cannot be written: ") + error.what()};
      Perform(monitor_.Failed(cause, Clock::now()));
    }
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

  /// When nothing is left to end: what of the run cannot be written is told at the end, and the rest is still tried.
  template <class Body>
  void WriteLast(Body body) {
    try {
      body();
    } catch (const Error& error) {
      end_trouble_ += std::string(end_trouble_.empty() ? "" : "; ") + error.what();
    }
  }

  /// Returns the exit code: the job's, but a run whose end cannot be written has not completed.
  int WriteEnd() {
    const JobOutcome& outcome = monitor_.outcome();
    std::string summary = record_.Summary({job_.spec, job_.world(), job_.parent}, outcome, monitor_.attempt());
    WriteLast([&] {
      directory_.Event(UnixNanoseconds(), "", -1, monitor_.attempt(), "end",
                       outcome.status + (outcome.cause ? ": " + outcome.cause->message : ""));
    });
    WriteLast([&] { directory_.Write("summary.json", summary + "\n"); });
    return end_trouble_.empty() || outcome.exit_code != 0 ? outcome.exit_code : static_cast<int>(ExitCode::failure);
  }

  void TellEnd(int code) {
    const JobOutcome& outcome = monitor_.outcome();
    if (!end_trouble_.empty()) LogError("the run directory cannot be written: " + end_trouble_);
    const bool failed = outcome.status == "failed" || code != outcome.exit_code;
    std::string text = (failed ? "failed" : outcome.status) + " (exit code " + std::to_string(code) + ")";
    if (outcome.cause) text += ": " + outcome.cause->message;
    if (code != outcome.exit_code)
      text += ": it " + outcome.status + ", but its end is in no file; make room, and run it again from its checkpoint";
    LogLevel level = failed ? LogLevel::error : LogLevel::info;
    if (outcome.cause && outcome.cause->rank >= 0 && !last_lines_[outcome.cause->rank].empty()) {
      text += "\n  last lines of rank " + std::to_string(outcome.cause->rank) + " on " + outcome.cause->host + ":";
      for (const std::string& line : last_lines_[outcome.cause->rank]) {
        text += "\n    " + Shown(TerminalLine(line, /*color=*/false), kLongestLastLine);
      }
    }
    for (const WorkerEnd& victim : outcome.victims) {
      text += "\n  rank " + std::to_string(victim.rank) + " ended because of it" +
              (victim.message.empty() ? "" : ": " + victim.message);
    }
    Log(level, job_.spec.name + " " + text + "\n  run directory: " + directory_.path().string());
  }

  const Job& begun_;            ///< as it was begun
  Job job_;                     ///< with the spec and the ranks of this attempt
  std::optional<NodeFit> fit_;  ///< of the next attempt, where nodes were lost
  std::vector<std::pair<int, std::string>> fit_plans_;
  Agents agents_;
  std::vector<std::pair<int, std::string>> plans_;
  RunDirectory directory_;
  JobMonitor monitor_;
  std::unique_ptr<Screen> screen_;
  RunRecord record_;
  std::string token_ = RandomHex(16);
  std::vector<NodeShare> shares_;
  DataNetwork data_network_;
  std::vector<std::vector<CheckResult>> checks_;  ///< of the preflight, by node
  std::map<int, std::deque<std::string>> last_lines_;
  Clock::time_point next_tick_ = Clock::now(), next_beat_ = Clock::now();
  bool finished_ = false, files_fail_ = false;
  std::string end_trouble_;  ///< what of the run's end could not be written, and why
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
