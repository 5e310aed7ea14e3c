// The SLURM allocation that this process runs in: its nodes, and how many workers each may have.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/job/hostfile.h"

namespace ds {

/// The outside world, so that tests can stand in for it.
struct SlurmWorld {
  /// A variable of the environment; null where it is not set.
  std::function<const char*(const char*)> variable;
  /// What a command prints on standard output; nothing where it is missing or fails. Throws Error(ExitCode::preflight)
  /// where it takes longer than 15 s.
  std::function<std::optional<std::string>(const std::vector<std::string>& argv)> ask;
};

/// The process's own environment, and commands that are run.
SlurmWorld ThisSlurmWorld();

struct SlurmAllocation {
  std::string job_id;            ///< "12"; of an array's task "12_3"
  std::string nodelist;          ///< as SLURM writes it
  std::vector<HostSlots> hosts;  ///< by the names of their nodes, in SLURM's order; slots: 0..N-1
  std::vector<int> limits;       ///< the most slots that each may have: its GPUs; without GPUs its CPUs
  std::vector<int> gpus;         ///< of each host
  std::string slots_from;        ///< "2 tasks a node (SLURM_TASKS_PER_NODE)"
  std::string this_node;         ///< the node that this process runs on; empty: none of the allocation (salloc)
};

/// Whether this process is inside an allocation: SLURM_JOB_ID and SLURM_JOB_NODELIST are set.
bool InSlurmAllocation(const SlurmWorld& world);

/// Reads it. Nodes are those of SLURM_JOB_NODELIST; where our reading of it does not give SLURM_JOB_NUM_NODES nodes, or
/// none at all, `scontrol show hostnames` is asked. Slots of a node are its GPUs in this allocation
/// (SLURM_GPUS_PER_NODE; on a single node SLURM_GPUS_ON_NODE; else `scontrol --details show job`), without GPUs its
/// tasks (SLURM_TASKS_PER_NODE). Throws UsageError outside an allocation (with what to type), in a step of several
/// tasks, in a heterogeneous job, and where variables contradict each other.
SlurmAllocation ReadSlurmAllocation(const SlurmWorld& world);

/// That of this process, read once: what it has does not change while it lives.
const SlurmAllocation& ThisSlurmAllocation();

/// Whether a job takes its nodes from the allocation where no hostfile gives them: bootstrap `slurm`, and `auto` inside
/// an allocation.
bool TakesSlurmAllocation(const std::string& bootstrap);

/// Why `host` cannot be part of a job in this allocation; empty: it can.
std::string RefusalOf(const SlurmAllocation& allocation, const HostSlots& host);

}  // namespace ds
