#include "agent/workers.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/base/text.h"

namespace ds {
namespace {

namespace pb = ::deepshard::v1;

/// Tests put a program of their own in ds-worker's place (docs/operations.md).
constexpr char kWorkerProgramVariable[] = "DS_WORKER_PROGRAM";

struct Pipe {
  int read_end = -1, write_end = -1;
  Pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw SystemError("cannot make a pipe for a worker's output", errno);
    read_end = ends[0];
    write_end = ends[1];
  }
  ~Pipe() {
    if (read_end >= 0) ::close(read_end);
    ::close(write_end);
  }
  int TakeReadEnd() { return std::exchange(read_end, -1); }
};

}  // namespace

void Workers::Start(WorkerSetting setting) {
  setting_ = std::move(setting);
  workers_.clear();
  for (const pb::RankPlace& place : setting_.start.ranks()) {
    Worker& worker = workers_[place.rank()];
    worker.place = place;
    worker.health.set_rank(place.rank());
    worker.health.set_state("starting");
    worker.health_at = std::chrono::steady_clock::now();
    StartOne(worker);
  }
}

void Workers::StartOne(Worker& worker) {
  try {
    Pipe out, error;
    SpawnOptions options;
    options.argv = Argv(worker);
    options.environment = Environment(worker);
    options.working_directory = setting_.start.working_directory();
    options.stdout_fd = out.write_end;
    options.stderr_fd = error.write_end;
    options.new_group = true;
    options.parent_death_signal = SIGKILL;
    SpawnBound(worker, options);
    output_.Add(KeyOf(worker), out.TakeReadEnd(), error.TakeReadEnd(), setting_.start.log_lines_per_second());
    worker.output_open = true;
    watcher_.Watch(worker.pid);
  } catch (const Error& error) {
    pb::WorkerFailure failure;
    failure.set_message(RepairUtf8(error.what()));  // it may name a file: protobuf's text is UTF-8
    worker.failure = failure;
    worker.pid = -1;  // one that could not be watched is gone
    worker.end = ProcessEnd{127, 0};
    worker.ended_at = std::chrono::steady_clock::now();
  }
}

/// Processes inherit cores and memory from the thread that forks them.
void Workers::SpawnBound(Worker& worker, const SpawnOptions& options) {
  const auto binding = setting_.bindings.find(worker.place.rank());
  const auto spawn = [&] { worker.pid = Spawn(options); };
  if (binding == setting_.bindings.end()) return spawn();
  worker.unbound = setting_.topology->Bound(binding->second, spawn);
}

std::string Workers::AffinityText() const {
  std::string text;
  for (const auto& [rank, binding] : setting_.bindings) {
    text += "; rank " + std::to_string(rank) + ": " + BindingText(binding);
    const auto worker = workers_.find(rank);
    if (worker != workers_.end() && !worker->second.unbound.empty())
      text += " (not bound: " + worker->second.unbound + ")";
  }
  return text;
}

uint32_t Workers::ThreadsOf(const Worker& worker) const {
  const uint32_t threads = setting_.start.threads();
  const auto binding = setting_.bindings.find(worker.place.rank());
  if (binding == setting_.bindings.end()) return threads;
  return std::max(1u, std::min(threads, static_cast<uint32_t>(binding->second.threads)));
}

std::vector<std::string> Workers::Argv(const Worker& worker) const {
  const pb::Start& start = setting_.start;
  if (foreign()) return {start.program().begin(), start.program().end()};
  const char* replacement = std::getenv(kWorkerProgramVariable);
  return {replacement ? replacement : ExecutableFolder() + "/ds-worker",
          "--agent",
          setting_.socket_path,
          "--rank",
          std::to_string(worker.place.rank()),
          "--attempt",
          std::to_string(setting_.attempt)};
}

pb::Assignment Workers::AssignmentOf(const Worker& worker) const {
  const pb::Start& start = setting_.start;
  pb::Assignment assignment;
  assignment.set_rank(worker.place.rank());
  assignment.set_world_size(start.world_size());
  assignment.set_local_rank(worker.place.local_rank());
  assignment.set_threads(ThreadsOf(worker));
  assignment.set_interface_address(start.interface_address());
  assignment.set_run_directory(start.run_directory());
  assignment.set_resume(start.resume());
  assignment.set_spec(start.spec());
  assignment.set_machine(start.machine());
  assignment.set_attempt(setting_.attempt);
  assignment.set_job_id(setting_.job_id);
  const auto gpu = setting_.gpus.find(worker.place.rank());
  if (gpu != setting_.gpus.end()) assignment.set_gpu(static_cast<uint32_t>(gpu->second.place));
  return assignment;
}

void Workers::Signal(int signal) {
  for (auto& [rank, worker] : workers_) {
    if (!worker.running()) continue;
    worker.agent_signal = signal;
    ::kill(-worker.pid, signal);
  }
}

Worker* Workers::Find(uint32_t rank) {
  auto it = workers_.find(rank);
  return it == workers_.end() ? nullptr : &it->second;
}

Worker* Workers::FindProcess(pid_t pid) {
  for (auto& [rank, worker] : workers_) {
    if (worker.pid == pid) return &worker;
  }
  return nullptr;
}

}  // namespace ds
