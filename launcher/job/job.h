// A job made ready to launch: hosts and ranks chosen, the spec resolved against them, environment and resume decided.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/tensor.h"
#include "launcher/bootstrap/bootstrap.h"
#include "launcher/job/rank_map.h"
#include "launcher/job/worker_environment.h"
#include "launcher/options/launch_options.h"
#include "runtime/job/hostfile.h"
#include "runtime/job/job_spec.h"
#include "runtime/plan/machine_file.h"
#include "runtime/plan/planner.h"
#include "runtime/run/rank_set.h"

namespace ds {

struct Job {
  LaunchOptions options;
  JobSpec spec;  ///< of a program: name and launch.* alone
  std::vector<HostSlots> hosts;
  std::vector<RankEntry> ranks;                  ///< hosts without any are spares (launch.min_nodes)
  std::vector<std::string> program;              ///< a program's whole command line; empty: a training job
  std::vector<VariableSource> variable_sources;  ///< for the workers, in ascending order of precedence
  std::string working_directory;                 ///< ds-launch's, where programs run
  RankSet shown, logged;                         ///< whose lines the screen and the logs get
  std::string resume;                            ///< a checkpoint's folder, verified; empty: anew
  std::string parent;                            ///< RUN-ID that wrote it; empty: none
  std::vector<std::string> resume_fallbacks;     ///< newer checkpoints that --resume auto passed over, and why
  std::optional<MachineFile> machine;            ///< of --machine, else of the run that is resumed
  std::string machine_from;                      ///< where it was read
  std::string machine_changed;                   ///< that it is another than the resumed run's; empty: it is not

  bool foreign() const { return !options.program.empty(); }
  int world() const { return static_cast<int>(ranks.size()); }
  /// Hosts that have ranks, in order.
  std::vector<int> Nodes() const;
  /// As asked for; ChooseBootstrap tells what `auto` is.
  std::string bootstrap() const { return options.bootstrap.empty() ? spec.launch.bootstrap : options.bootstrap; }
};

/// Throws UsageError for whatever is wrong with the files and options. Starts and writes nothing.
Job PrepareJob(const LaunchOptions& options);

struct PlannedRoles {
  JobSpec spec;                                    ///< the job's, with the places that it left to the planner
  std::vector<std::string> placement;              ///< why these, a line each; empty: it left none
  std::vector<std::pair<int, std::string>> plans;  ///< of one rank of each distinct role, as text, by rank
};

/// Throws UsageError when a rank's plan needs more than the spec allows or than there is `room` for. Without plans for
/// a program.
PlannedRoles PlanRoles(const Job& job, const TierRoom& room, DeviceKind device);

/// What the ranks will compute on, as far as it is known before the nodes are: GPUs where training.device says so, or
/// where the job runs on this machine and it has some.
DeviceKind DeviceExpected(const Job& job);

/// What the spec's launch.* say of bringing agents up.
BootstrapSettings BootstrapSettingsOf(const Job& job);

/// What --dry-run prints.
std::string DescribeJob(const Job& job);

}  // namespace ds
