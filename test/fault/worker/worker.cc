// A worker that pretends to train: what fault tests put in ds-worker's place (DS_WORKER_PROGRAM). It speaks the real
// link and goes in lockstep through the real store, but a step is a pause.
//
//   DS_TEST_STEP_MS   length of a step (default 10)
//   DS_TEST_FAULTS    FAULT[;FAULT]..., FAULT = RANK@STEP=EFFECT or RANK@STEP#ATTEMPT=EFFECT, after that step is done:
//                     exit:N     fails with exit code N         signal:N   sends itself signal N
//                     stop       SIGSTOPs itself                deaf       ignores SIGTERM, never ends
//                     hang       never returns
//                     victim     CommunicatorAborted            child      leaves a child in a session of its own
//                     flood      writes 4 MiB of lines and one of 1 MiB
//
// `test-fault-worker --signal-clock` is a program that waits for a signal and says which came, and when.
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <thread>

#include "runtime/base/error.h"
#include "runtime/comm/communicator.h"
#include "runtime/job/job_spec.h"
#include "runtime/worker/worker.h"

namespace ds {
namespace {

using std::chrono::milliseconds;

std::string Variable(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value ? value : otherwise;
}

/// The effect that DS_TEST_FAULTS names for this place; empty: none.
std::string EffectAt(int rank, int64_t step, int64_t attempt) {
  std::istringstream faults(Variable("DS_TEST_FAULTS", ""));
  std::string place = std::to_string(rank) + "@" + std::to_string(step);
  for (std::string fault; std::getline(faults, fault, ';');) {
    std::string where = fault.substr(0, fault.find('='));
    if (where == place || where == place + "#" + std::to_string(attempt)) return fault.substr(fault.find('=') + 1);
  }
  return "";
}

void SleepForever() {
  for (;;) ::pause();
}

/// Of a name that a stack shows.
__attribute__((noinline)) void HangInTheStep() {
  SleepForever();
  asm volatile("");
}

void LeaveChild() {
  if (::fork() != 0) return;
  ::setsid();
  ::signal(SIGTERM, SIG_IGN);
  ::signal(SIGHUP, SIG_IGN);
  SleepForever();
}

void Flood() {
  std::string line(100, 'x');
  for (int i = 0; i < (4 << 20) / 101; ++i) std::puts(line.c_str());
  std::puts(std::string(1 << 20, 'y').c_str());
  std::fflush(stdout);
}

void Do(const std::string& effect) {
  std::string kind = effect.substr(0, effect.find(':'));
  int number = effect.find(':') == std::string::npos ? 0 : std::atoi(effect.c_str() + effect.find(':') + 1);
  if (kind == "exit")
    throw Error(static_cast<ExitCode>(number), "a fault was injected: exit " + std::to_string(number));
  if (kind == "signal") ::raise(number);
  if (kind == "stop") ::raise(SIGSTOP);
  if (kind == "victim") throw CommunicatorAborted("all-gather with rank 0: the peer is gone");
  if (kind == "child") LeaveChild();
  if (kind == "hang") HangInTheStep();
  if (kind == "flood") Flood();
  if (kind == "deaf") {
    ::signal(SIGTERM, SIG_IGN);
    SleepForever();
  }
}

/// All ranks meet at `step`; rank 0 says whether to stop there.
bool Meet(const WorkerAssignment& me, Store& store, int64_t step, bool stop) {
  const auto long_time = std::chrono::hours(1);
  std::string key = "step/" + std::to_string(step);
  if (me.rank != 0) {
    store.Set(key + "/" + std::to_string(me.rank), stop ? "stop" : "go");
    return store.Get(key, long_time) == "stop";
  }
  for (int rank = 1; rank < me.size; ++rank) {
    stop |= store.Get(key + "/" + std::to_string(rank), long_time) == "stop";
  }
  store.Set(key, stop ? "stop" : "go");
  return stop;
}

StepRecord RecordOf(int64_t step, int64_t attempt, double step_ms) {
  StepRecord record;
  record.step = step;
  record.attempt = attempt;
  record.loss = 4.0 / static_cast<double>(step);
  record.grad_norm = 1.5;
  record.lr = 1e-3;
  record.tokens = step * 1000;
  record.step_ms = step_ms;
  record.tokens_per_second = step_ms > 0 ? 1e6 / step_ms : 0;
  record.peak_host_bytes = 123456;
  return record;
}

TrainResult Pretend(const WorkerAssignment& me, Reporter& reporter, Store& store) {
  JobSpec spec = ParseJobSpec(me.spec, "job.yaml", me.run_directory, {}, me.size);
  int step_ms = std::atoi(Variable("DS_TEST_STEP_MS", "10").c_str());
  std::printf("rank %d of %d, local rank %d, %d threads, %s\n", me.rank, me.size, me.local_rank, me.threads,
              me.interface_address.c_str());
  std::fflush(stdout);
  reporter.OnState("training");
  TrainResult result;
  for (int64_t step = 1; step <= spec.training.steps && !result.stopped; ++step) {
    std::this_thread::sleep_for(milliseconds(step_ms));
    result.stopped = Meet(me, store, step, reporter.StopRequested()) && step < spec.training.steps;
    StepRecord record = RecordOf(step, me.attempt, step_ms);
    reporter.OnStep(record);
    result.steps = step;
    result.final_loss = record.loss;
    Do(EffectAt(me.rank, step, me.attempt));
  }
  if (result.stopped && spec.checkpoint.on_signal)
    reporter.OnEvent("checkpoint", "at step " + std::to_string(result.steps));
  return result;
}

int SignalClock() {
  sigset_t signals;
  ::sigfillset(&signals);
  ::sigprocmask(SIG_BLOCK, &signals, nullptr);
  std::printf("ready %d\n", ::getpid());
  std::fflush(stdout);
  const int signal = ::sigwaitinfo(&signals, nullptr);
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  std::printf("signal %d at %.6f\n", signal, static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9);
  return 1;
}

}  // namespace
}  // namespace ds

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "--signal-clock") == 0) return ds::SignalClock();
  return ds::WorkerMain(argc, argv, ds::Pretend);
}
