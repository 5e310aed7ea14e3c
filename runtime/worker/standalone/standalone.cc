#include "runtime/worker/standalone/standalone.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "runtime/base/clock.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/base/process.h"
#include "runtime/base/signal.h"
#include "runtime/base/start_limits.h"
#include "runtime/comm/mpi/mpi_world.h"
#include "runtime/worker/messages.h"
#include "runtime/worker/standalone/file_board.h"
#include "runtime/worker/standalone/meeting.h"
#include "runtime/worker/standalone/options.h"
#include "runtime/worker/standalone/peers.h"
#include "runtime/worker/standalone/place.h"
#include "runtime/worker/standalone/reporter.h"

namespace ds {
namespace {

namespace fs = std::filesystem;
namespace pb = ::deepshard::v1;
using std::chrono::milliseconds;

/// A victim waits so long for the one that failed to say why.
constexpr auto kCulpritSpeaks = milliseconds(2000);
/// Ranks that failed stay until the summary is written: mpirun ends the others when the first is gone.
constexpr auto kSummaryWritten = milliseconds(3000);
/// A signal that comes again so soon is the same one on another way (srun and scancel, mpirun and its daemon).
constexpr auto kSameSignal = milliseconds(1000);
constexpr auto kConnect = milliseconds(60'000);
/// After a failure: by then the training thread has noticed, unless it is stuck.
constexpr auto kTrainingNotices = milliseconds(100);

std::atomic<bool> stop_requested{false};
std::atomic<bool> job_done{false};  ///< all its steps, on every rank
std::atomic<bool> job_ends{false};  ///< a thread ends it, and the process, because of a failure
std::atomic<int> stop_signal{0};
std::atomic<int64_t> stop_at_ms{0}, grace_ms{30'000};

int64_t NowMs() {
  return std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// The first asks for an end after the step, with a checkpoint; after launch.grace_seconds, or by another signal, the
/// process ends at once.
void OnSignal(int signal) {
  int none = 0;
  if (stop_signal.compare_exchange_strong(none, signal)) {
    stop_at_ms = NowMs();
    stop_requested = true;
    std::thread([signal] {
      while (NowMs() - stop_at_ms < grace_ms) std::this_thread::sleep_for(milliseconds(50));
      LogError(SignalName(signal) + " was received launch.grace_seconds ago: this worker ends");
      ::_exit(128 + signal);
    }).detach();
  } else if (NowMs() - stop_at_ms >= kSameSignal.count()) {
    ::_exit(128 + signal);
  }
}

/// The kernels' threads read how to wait when the process begins.
void BeginWithOpenMp(int size, char** argv) {
  if (std::getenv("OMP_WAIT_POLICY") || (size == 1 && std::getenv("GOMP_SPINCOUNT"))) return;
  ::setenv(size == 1 ? "GOMP_SPINCOUNT" : "OMP_WAIT_POLICY", size == 1 ? "20000" : "passive", 1);
  ::execv(ExecutablePath().c_str(), argv);  // where it fails, it goes on as it is
}

class Run {
 public:
  Run(StandaloneOptions options, Place place, const WorkerJob& job)
      : options_(std::move(options)), place_(std::move(place)), job_(job) {}

  int Execute() {
    try {
      OpenBoard();
      meeting_.emplace(Meet(options_, place_, Rendezvous()));
    } catch (const Told& told) {
      return Unbegun(told.code());
    } catch (const Error& error) {
      LogError(error.what());
      return Unbegun(error.code());
    }
    WorkerAssignment& assignment = meeting_->assignment;
    spec_ = ParseJobSpec(assignment.spec, "job.yaml", assignment.run_directory, {}, place_.size);
    grace_ms = static_cast<int64_t>(spec_.launch.grace_seconds * 1e3);
    StandaloneReporter::Job told{place_.rank, Hosts(), spec_.training.steps, spec_.training.log_every};
    RunDirectory* directory = meeting_->directory ? &*meeting_->directory : nullptr;
    reporter_.emplace(std::move(told), directory, board_.get(), stop_requested);
    if (directory) Announce();
    Cause cause;
    try {
      peers_ = std::make_unique<Peers>(place_.rank, Hosts(), assignment.interface_address, Rendezvous(), kConnect,
                                       [this] { EndSoon(); });
      if (world_) {
        assignment.communicators = [this](milliseconds timeout) {
          return MpiFactory({place_.rank, place_.size, meeting_->assignment.interface_address, timeout}, *world_,
                            Rendezvous());
        };
      }
      const TrainResult result = job_(assignment, *reporter_, Rendezvous());
      return Completed(result);
    } catch (const CommunicatorAborted& error) {
      return Failed(OwnCause(kVictimExitCode, "", error.what()), true);
    } catch (const NumericalError& error) {
      return Failed(OwnCause(static_cast<int>(error.code()), error.kind(), error.what()), false);
    } catch (const Error& error) {
      return Failed(OwnCause(static_cast<int>(error.code()), "", error.what()), false);
    } catch (const std::exception& error) {
      return Failed(OwnCause(1, "", error.what()), false);
    }
  }

 private:
  // ---- meeting

  void OpenBoard() {
    if (place_.size == 1) return;
    bool mpi = options_.collectives == "mpi" || (options_.collectives == "auto" && place_.mpi);
    if (mpi && !place_.mpi)
      throw UsageError("--collectives mpi: MPI did not start these ranks (" + place_.from +
                       "); use mpirun, or srun --mpi=pmix");
    if (mpi && options_.collectives == "auto" && !fs::exists(ExecutableFolder() + "/libds_mpi.so")) {
      if (place_.rank == 0) LogWarning("this build has no MPI (libds_mpi.so): the ranks use Gloo");
      mpi = false;
    }
    if (mpi) {
      world_ = std::make_unique<MpiWorld>(OpenMpi());
      if (world_->rank() != place_.rank || world_->size() != place_.size) {
        throw RuntimeError("MPI says rank " + std::to_string(world_->rank()) + " of " + std::to_string(world_->size()) +
                           ", the environment rank " + std::to_string(place_.rank) + " of " +
                           std::to_string(place_.size) +
                           ": which MPI is libds_mpi.so linked with, and which mpirun ran?");
      }
      board_ = std::make_unique<MpiStore>(*world_);
    } else {
      const fs::path folder = fs::absolute(options_.output) / (".rendezvous-" + place_.launch);
      board_ = std::make_unique<FileBoard>(folder, place_.rank == 0, kConnect);
    }
  }

  Store& Rendezvous() { return board_ ? static_cast<Store&>(*board_) : single_; }

  std::vector<std::string> Hosts() const {
    std::vector<std::string> hosts;
    for (const RankFacts& rank : meeting_->ranks) hosts.push_back(rank.host);
    return hosts;
  }

  void Announce() const {
    const std::string& run = meeting_->assignment.run_directory;
    if (place_.size == 1)
      std::printf("run %s: 1 rank\n", run.c_str());
    else
      std::printf("run %s: %d ranks (%s), collectives over %s\n", run.c_str(), place_.size, place_.from.c_str(),
                  world_ ? world_->version().c_str() : "Gloo");
    std::fflush(stdout);
  }

  // ---- ends

  Cause OwnCause(int code, const std::string& kind, const std::string& message) const {
    const std::string& host = meeting_->ranks[static_cast<size_t>(place_.rank)].host;
    return {kind.empty() ? "worker_exit" : kind,
            host,
            place_.rank,
            0,
            code,
            "rank " + std::to_string(place_.rank) + " on " + host + " ended with exit code " + std::to_string(code) +
                ": " + message};
  }

  int Completed(const TrainResult& result) {
    pb::WorkerResult message;
    Fill(result, message);
    reporter_->record().SetResult(message);
    JobOutcome outcome{"completed", 0, std::nullopt, {}};
    const std::vector<int64_t> signals = peers_->Gather(stop_signal);  // every rank is done
    if (result.stopped) {
      int signal = SIGTERM;
      for (auto it = signals.rbegin(); it != signals.rend(); ++it) signal = *it != 0 ? static_cast<int>(*it) : signal;
      outcome.status = signal == SIGUSR1 || signal == SIGUSR2 ? "preempted" : "interrupted";
      outcome.exit_code = 128 + signal;
      outcome.cause = Cause{"signal", "", -1, signal, 0, "ds-worker received " + SignalName(signal)};
    }
    job_done = true;
    if (place_.rank == 0) Conclude(outcome);
    try {
      peers_->Gather(0);  // the summary is written: no rank that ends before makes mpirun end the others
    } catch (const CommunicatorAborted& error) {
      LogWarning(error.what());  // the job is done; a rank that was killed now waits for nobody
      ::_exit(outcome.exit_code);
    }
    peers_.reset();
    CloseBoard();
    if (world_) world_->Finalize();
    return outcome.exit_code;
  }

  /// MPI may hold the training thread in a call, and then end the process: the failure is told by another.
  void EndSoon() {
    std::thread([this] {
      std::this_thread::sleep_for(kTrainingNotices);
      if (!job_done && !job_ends.exchange(true))
        Conclude(OwnCause(kVictimExitCode, "", "a peer failed while MPI waited for it"), true);
    }).detach();
  }

  [[noreturn]] int Failed(const Cause& own, bool victim) {
    while (job_ends.exchange(true)) ::pause();  // another thread ends the process
    Conclude(own, victim);
  }

  [[noreturn]] void Conclude(const Cause& own, bool victim) {
    if (!victim && peers_) peers_->Tell(own);
    std::optional<Cause> first = peers_ ? peers_->Await(victim ? kCulpritSpeaks : milliseconds(0)) : std::nullopt;
    const Cause cause = first.value_or(own);
    if (cause.rank != place_.rank || victim) LogDebug(own.message);
    // Rank 0 writes; where it is the one that was lost, the next.
    const bool rank0_lost = cause.kind == "worker_lost" && cause.rank == 0;
    const fs::path summary = fs::path(meeting_->assignment.run_directory) / "summary.json";
    if (place_.rank == (rank0_lost ? 1 : 0)) {
      try {
        Conclude({"failed", cause.code, cause, {}});
      } catch (const std::exception& error) {
        LogError(error.what());
      }
    } else {
      if (cause.rank == place_.rank) LogError(own.message);
      const int64_t until = NowMs() + kSummaryWritten.count();
      while (!fs::exists(summary) && NowMs() < until) std::this_thread::sleep_for(milliseconds(10));
    }
    if (!world_ || cause.kind != "worker_lost") CloseBoard();
    // A lost rank: another thread may hold MPI. And without MPI_Finalize, which would wait for ranks that are gone.
    std::fflush(stdout);
    ::_exit(cause.code);
  }

  /// The files' last words, and the screen's.
  void Conclude(const JobOutcome& outcome) {
    const std::string& path = meeting_->assignment.run_directory;
    const RunFacts facts{spec_, place_.size, meeting_->parent};
    const std::string summary = reporter_->record().Summary(facts, outcome, 1);
    if (meeting_->directory) {
      // Where a rank was lost, another thread may hold MPI, which brings the events, and never let go.
      if (!outcome.cause || outcome.cause->kind != "worker_lost") reporter_->TakeEvents();
      meeting_->directory->CheckThere();
      meeting_->directory->UseLastRoom();
      reporter_->TellCheckpoint();
      meeting_->directory->Event(UnixNanoseconds(), "", -1, 1, "end",
                                 outcome.status + (outcome.cause ? ": " + outcome.cause->message : ""));
    }
    WriteFileAtomically(fs::path(path) / "summary.json", summary + "\n");
    Log(outcome.status == "failed" ? LogLevel::error : LogLevel::info,
        spec_.name + " " + outcome.status + " (exit code " + std::to_string(outcome.exit_code) + ")" +
            (outcome.cause ? ": " + outcome.cause->message : "") + "\n  run directory: " + path);
  }

  int Unbegun(ExitCode code) {
    CloseBoard();
    std::fflush(stdout);
    if (world_) ::_exit(static_cast<int>(code));  // a rank that is missing would be waited for
    return static_cast<int>(code);
  }

  void CloseBoard() {
    auto* files = dynamic_cast<FileBoard*>(board_.get());
    if (files) {
      try {
        // The folder stays until all have read what they need, or are gone.
        files->Set("done/" + std::to_string(place_.rank), "");
        const int64_t until = NowMs() + kSummaryWritten.count();
        for (int rank = 0; place_.rank == 0 && rank < place_.size; ++rank) {
          std::string value;
          while (!files->Find("done/" + std::to_string(rank), value) && NowMs() < until)
            std::this_thread::sleep_for(milliseconds(10));
        }
      } catch (const std::exception&) {
        // The folder is gone: so is who would read it.
      }
      if (place_.rank == 0) files->Remove();
    }
    board_.reset();
  }

  const StandaloneOptions options_;
  const Place place_;
  const WorkerJob& job_;
  MemoryStore single_;
  std::unique_ptr<MpiWorld> world_;  ///< null: no MPI
  std::unique_ptr<Board> board_;     ///< null: one rank
  std::optional<Meeting> meeting_;
  JobSpec spec_;
  std::optional<StandaloneReporter> reporter_;
  std::unique_ptr<Peers> peers_;
};

}  // namespace

int StandaloneMain(int argc, char** argv, const WorkerJob& job) {
  int rank = 0;
  try {
    const Place place = PlaceFromEnvironment([](const char* name) { return std::getenv(name); });
    rank = place.rank;
    StandaloneOptions options = ParseStandaloneOptions(argc, argv);
    BeginWithOpenMp(place.size, argv);
    CheckStartLimits("ds-worker");
    ::signal(SIGPIPE, SIG_IGN);
    ::signal(SIGXFSZ, SIG_IGN);  // a file beyond `ulimit -f` is a failed write, with a reason
    const std::vector<int> signals{SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};
    for (int signal : signals) ::signal(signal, SIG_DFL);  // what is ignored reaches no watcher
    const SignalWatcher watcher(signals, OnSignal);        // before MPI's threads
    return Run(std::move(options), place, job).Execute();
  } catch (const Error& error) {
    if (rank == 0) LogError(std::string("ds-worker: ") + error.what());
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    LogError(std::string("ds-worker: ") + error.what());
    return 1;
  }
}

}  // namespace ds
