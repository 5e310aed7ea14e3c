// The workers of one attempt on this node: their processes and what is known of them. Owned by the agent's main thread.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/affinity.h"
#include "agent/gpus.h"
#include "agent/local_server.h"
#include "agent/output_reader.h"
#include "proto/deepshard.pb.h"
#include "runtime/base/process.h"

namespace ds {

struct Worker {
  deepshard::v1::RankPlace place;
  pid_t pid = -1;  ///< also its process group; -1: could not be started
  std::optional<ProcessEnd> end;
  std::string unbound;  ///< what of its binding could not be done; empty: nothing
  std::chrono::steady_clock::time_point ended_at;
  int64_t ended_unix_ns = 0;
  bool linked = false, output_open = false;
  bool reported = false;  ///< its end
  bool stepped = false;   ///< a step record came from it
  int agent_signal = 0;   ///< the last signal sent to it
  deepshard::v1::WorkerHealth health;
  std::chrono::steady_clock::time_point health_at;
  std::vector<deepshard::v1::StepRecord> steps;  ///< not yet passed on
  std::optional<deepshard::v1::WorkerFailure> failure;
  std::optional<deepshard::v1::WorkerResult> result;

  bool running() const { return pid > 0 && !end; }
};

/// Everything that workers of one start have in common.
struct WorkerSetting {
  deepshard::v1::Start start;
  int64_t attempt = 0;
  std::string job_id;
  std::string socket_path;
  std::map<uint32_t, WorkerGpu> gpus;    ///< by rank
  const Topology* topology = nullptr;    ///< that `bindings` are of
  std::map<uint32_t, Binding> bindings;  ///< by rank; none: workers are not bound
};

class Workers {
 public:
  Workers(ProcessWatcher& watcher, OutputReader& output) : watcher_(watcher), output_(output) {}

  /// Forks one worker a place, from the calling thread, whose end they do not survive. A worker that cannot be started
  /// has ended with exit code 127 and a failure that says why.
  void Start(WorkerSetting setting);

  /// "; rank 0: CPUs 0-3, memory 0; rank 1: ..."
  std::string AffinityText() const;

  /// The first message to a worker that linked up.
  deepshard::v1::Assignment AssignmentOf(const Worker& worker) const;

  /// To the process groups of all that run.
  void Signal(int signal);

  /// Forgets them all; they have ended.
  void Clear() { workers_.clear(); }

  Worker* Find(uint32_t rank);
  Worker* FindProcess(pid_t pid);
  std::map<uint32_t, Worker>& all() { return workers_; }
  int64_t attempt() const { return setting_.attempt; }
  WorkerKey KeyOf(const Worker& worker) const { return {setting_.attempt, worker.place.rank()}; }
  bool foreign() const { return setting_.start.program_size() > 0; }

 private:
  void StartOne(Worker& worker);
  void SpawnBound(Worker& worker, const SpawnOptions& options);
  uint32_t ThreadsOf(const Worker& worker) const;
  std::vector<std::string> Argv(const Worker& worker) const;
  std::vector<std::string> Environment(const Worker& worker) const;  // worker_environment.cc

  ProcessWatcher& watcher_;
  OutputReader& output_;
  WorkerSetting setting_;
  std::map<uint32_t, Worker> workers_;
};

}  // namespace ds
