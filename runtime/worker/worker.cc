#include "runtime/worker/worker.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "proto/channel.h"
#include "proto/version.h"
#include "runtime/base/clock.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/base/signal.h"
#include "runtime/base/stacks.h"
#include "runtime/base/standard_output.h"
#include "runtime/base/text.h"
#include "runtime/worker/link_reporter.h"

namespace ds {
namespace {

constexpr char kHelp[] =
    "ds-worker is started for you, one for each slot, by the agent of its node (ds-agent), which in turn is started "
    "by\n"
    "ds-launch. It trains one rank of the job that its agent assigns to it.\n\n"
    "  --agent SOCKET   the agent's Unix socket\n"
    "  --rank N         this worker's rank\n"
    "  --attempt N      which start of the workers this is (default 1)\n"
    "  --version        print the version\n";

/// After an order to abandon the step, the time in which a failure of our own may still be told.
constexpr auto kAbandonAfter = std::chrono::milliseconds(500);

std::atomic<bool> stop_requested{false};

/// The signal that asked this worker to stop; 0: none.
std::atomic<int> stop_signal{0};

struct Arguments {
  std::string socket;
  int rank = -1;
  int64_t attempt = 1;
};

template <class T>
T Number(const char* text, const std::string& flag) {
  T value{};
  auto [end, error] = std::from_chars(text, text + std::strlen(text), value);
  if (error != std::errc() || *end != '\0' || value < 0) throw UsageError(flag + ": not a number: " + text);
  return value;
}

Arguments Parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; i += 2) {
    std::string flag = argv[i];
    const std::vector<std::string> known = {"--agent", "--rank", "--attempt", "--help", "--version"};
    if (std::find(known.begin(), known.end() - 2, flag) == known.end() - 2) {
      throw UsageError("unknown option " + Shown(flag) + "; the nearest is " + Nearest(flag, known) +
                       "\nds-worker --help explains every option");
    }
    if (i + 1 >= argc) throw UsageError(flag + ": a value is missing\nds-worker --help explains every option");
    if (flag == "--agent") {
      arguments.socket = argv[i + 1];
    } else if (flag == "--rank") {
      arguments.rank = Number<int>(argv[i + 1], flag);
    } else {
      arguments.attempt = Number<int64_t>(argv[i + 1], flag);
    }
  }
  if (arguments.socket.empty() || arguments.rank < 0) throw UsageError(kHelp);
  return arguments;
}

void PrepareSignals() {
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);  // a file beyond `ulimit -f` is a failed write, with a reason
  // What is ignored, as SIGINT is by a shell's background jobs, reaches no watcher.
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1, SIGUSR2}) ::signal(signal, SIG_DFL);
}

void OnSignal(int signal) {
  int none = 0;
  stop_signal.compare_exchange_strong(none, signal);
  stop_requested = true;
}

void OnStop(bool checkpoint) {
  stop_requested = true;
  if (checkpoint) return;
  std::thread([] {
    std::this_thread::sleep_for(kAbandonAfter);
    ::_exit(kVictimExit);
  }).detach();
}

/// A job without its agent has nobody to report to and nobody who would end it.
void OnLost() {
  LogError("the agent is gone: this worker ends");
  ::_exit(kVictimExit);
}

int RunJob(AgentLink& link, const WorkerJob& job) {
  std::string message, kind;
  bool victim = false;
  int code = 0;
  int64_t failed_at = 0;
  const auto fail = [&](int with, const std::string& why) {
    failed_at = UnixNanoseconds();
    code = with;
    message = why;
  };
  std::optional<TrainResult> result;
  {
    LinkReporter reporter(link, stop_requested);
    try {
      result = job(link.assignment(), reporter, link);
    } catch (const CommunicatorAborted& error) {
      fail(kVictimExit, error.what());
      victim = true;
    } catch (const NumericalError& error) {
      fail(static_cast<int>(error.code()), error.what());
      kind = error.kind();
    } catch (const Error& error) {
      fail(static_cast<int>(error.code()), error.what());
    } catch (const std::exception& error) {
      fail(1, error.what());
    }
  }
  if (result) link.SendResult(*result, stop_signal);
  if (code != 0) {
    LogError(message);
    link.SendFailure(message, victim, kind, failed_at);
  }
  link.Close();
  return code;
}

}  // namespace

int WorkerMain(int argc, char** argv, const WorkerJob& job) {
  try {
    const std::string_view only = argc == 2 ? argv[1] : "";
    if (only == "--help") std::fputs(kHelp, stdout);
    if (only == "--version") std::printf("ds-worker %s (protocol %u)\n", BuildVersion(), kProtocolVersion);
    if (only == "--help" || only == "--version") {
      FlushStandardOutput();
      return 0;
    }
    PrepareSignals();
    // No handlers on the threads' own stacks: while oneDNN 2.6's AVX-512 products run, the stack pointer is one more
    // register that points into the heap, and the kernel would write the frame of a handler there.
    // SIGUSR1 and 2: a resource manager's warning before its time limit reaches every process of the job.
    const SignalWatcher watcher({SIGTERM, SIGINT, SIGUSR1, SIGUSR2}, OnSignal);
    const StackWitness witness("the training loop");
    PrepareGrpc();
    Arguments arguments = Parse(argc, argv);
    AgentLink link(arguments.socket, arguments.rank, arguments.attempt, {OnStop, OnLost});
    return RunJob(link, job);
  } catch (const Error& error) {
    LogError(std::string("ds-worker: ") + error.what());
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    LogError(std::string("ds-worker: ") + error.what());
    return 1;
  }
}

}  // namespace ds
