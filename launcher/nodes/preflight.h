// The preflight, judged: what the nodes told, against what the job needs. Pure: what tests look at.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launcher/job/rank_map.h"
#include "proto/deepshard.pb.h"
#include "runtime/job/hostfile.h"
#include "runtime/job/job_spec.h"

namespace ds {

enum class CheckStatus { passed, warning, failed, skipped };

struct CheckResult {
  std::string name;  ///< of kCheckNames
  CheckStatus status = CheckStatus::passed;
  std::string text;  ///< what was found; of a warning or failure also what to do
  double milliseconds = 0;
};

/// What one node found on its way to others (launcher/reachability.h).
struct ProbeOutcome {
  std::string text;  ///< what does not reach what; empty: everything did
  int dialled = 0;   ///< other nodes that it tried
  double milliseconds = 0;
};

/// What a job needs of its nodes. The defaults: nothing, as ds-report asks.
struct PreflightNeeds {
  bool foreign = true;           ///< a program: what it needs of a node is its own affair
  bool shared_output = false;    ///< checkpoints will be written
  bool one_device_kind = false;  ///< all ranks compute together, on GPUs or on CPUs: not so for foreign programs
  DeviceChoice device = DeviceChoice::automatic;
  std::string output;            ///< where checkpoints go; empty: nowhere
  int64_t checkpoint_bytes = 0;  ///< of one
  int64_t checkpoints = 0;       ///< that lie there at a time, the one being written counted
  int64_t checkpoint_keep = 0;
  int world = 0;  ///< ranks; 0: no workers will run
  std::vector<std::string> skip;
};

/// Limits, as docs/operations.md states them.
inline constexpr double kClockWarnSeconds = 2, kClockFailSeconds = 60;
inline constexpr int64_t kLeastTemporary = 1 << 20, kLittleTemporary = 64 << 20;
inline constexpr int64_t kShmPerRank = 32 << 20;  ///< NCCL's buffers between the ranks of a node
inline constexpr uint64_t kLeastRdmaMemory = 64 << 20;

/// Open files that an agent with `workers` workers needs, and that one worker among `world` does.
uint64_t AgentFiles(size_t workers);
uint64_t WorkerFiles(int world);

/// Everything of one node, in the order of kCheckNames. `offsets`: by how many nanoseconds each node's clock is ahead;
/// `probes`: empty where none were made. All in the order of `hosts`.
std::vector<std::vector<CheckResult>> JudgeNodes(const std::vector<HostSlots>& hosts,
                                                 const std::vector<deepshard::v1::NodeFacts>& facts,
                                                 const std::vector<int64_t>& offsets,
                                                 const std::vector<ProbeOutcome>& probes, const PreflightNeeds& needs);

/// "passed", "warning", "failed", "skipped"
const char* CheckStatusName(CheckStatus status);

/// One line a warning or failure: "preflight: disk on w1: 1.2 GiB free at ...". Equal ones of several nodes are one
/// line.
std::vector<std::string> PreflightLines(const std::vector<HostSlots>& hosts,
                                        const std::vector<std::vector<CheckResult>>& results);

/// "preflight: 12 checks passed on 8 nodes in 14 ms", with what was skipped.
std::string PreflightSummary(const std::vector<std::vector<CheckResult>>& results);

/// "w[0-7]", "w[0-2,5]", "gpu-a, gpu-b": names that differ in a number of equal width alone are taken together.
std::string GroupHosts(std::vector<std::string> hosts);

}  // namespace ds
