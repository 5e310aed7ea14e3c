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
    worker.pid = Spawn(options);
    output_.Add(KeyOf(worker), out.TakeReadEnd(), error.TakeReadEnd(), setting_.start.log_lines_per_second());
    worker.output_open = true;
    watcher_.Watch(worker.pid);
  } catch (const Error& error) {
    pb::WorkerFailure failure;
    failure.set_message(error.what());
    worker.failure = failure;
    worker.pid = -1;  // one that could not be watched is gone
    worker.end = ProcessEnd{127, 0};
    worker.ended_at = std::chrono::steady_clock::now();
  }
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
  assignment.set_threads(start.threads());
  assignment.set_interface_address(start.interface_address());
  assignment.set_run_directory(start.run_directory());
  assignment.set_resume(start.resume());
  assignment.set_spec(start.spec());
  assignment.set_machine(start.machine());
  assignment.set_attempt(setting_.attempt);
  assignment.set_job_id(setting_.job_id);
  // CUDA_VISIBLE_DEVICES names the GPUs of this node's workers, in their order.
  if (worker.place.gpu() >= 0) assignment.set_gpu(worker.place.local_rank());
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
