// What is settled before a run begins, whoever begins it: ds-launch, or a worker without agents.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/tensor.h"
#include "runtime/job/job_spec.h"
#include "runtime/plan/machine_file.h"
#include "runtime/plan/planner.h"
#include "runtime/run/run_directory.h"

namespace ds {

/// One `--set KEY=VALUE`. Throws UsageError.
Override ParseOverride(const std::string& text);

/// Throws UsageError where job.name cannot name a folder.
bool IsJobName(const std::string& name);
void CheckJobName(const std::string& name);

struct ResumeChoice {
  std::string checkpoint;              ///< its folder, verified; empty: anew
  std::string parent;                  ///< RUN-ID that wrote it; empty: none
  std::vector<std::string> fallbacks;  ///< newer checkpoints that `auto` passed over, and why
};

/// `resume`: never, auto or a path, as --resume has it. Throws UsageError.
ResumeChoice ChooseResume(const std::string& resume, const std::string& output, const std::string& name);

struct MachineChoice {
  std::optional<MachineFile> machine;
  std::string from;     ///< where it was read
  std::string changed;  ///< that it is another than the resumed run's; empty: it is not
};

/// `file`: of --machine; empty: that of the run which is resumed, so that the same algorithms give the same bits.
/// Throws UsageError.
MachineChoice ChooseMachine(const std::string& file, const std::string& resume, const std::string& parent);

/// job.yaml, a copy of the tokenizer's file (a run can turn tokens back into text when the file has moved),
/// machine.yaml. Throws UsageError where the tokenizer's file is not the one that was read for `spec`.
void WriteSpec(RunDirectory& directory, const JobSpec& spec, const std::optional<MachineFile>& machine);

struct PlannedJob {
  JobSpec spec;                        ///< with the places that it left to the planner
  std::vector<std::string> placement;  ///< why these, a line each; empty: it left none
  /// The plan of one rank of each pipeline stage, which stands for all of the stage, by rank; before the first, what
  /// the pipeline comes to.
  std::vector<std::pair<int, std::string>> plans;
};

/// Throws UsageError when a rank needs more than the spec allows or than there is `room` for.
PlannedJob PlanJob(const JobSpec& spec, int world, const std::optional<MachineFile>& machine,
                   const std::string& machine_from, const TierRoom& room, DeviceKind device);

}  // namespace ds
