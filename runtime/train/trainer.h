// The training job of one rank: what Train() sets up and runs. Private to runtime/train.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/checkpoint/background_checkpoints.h"
#include "runtime/exec/executor.h"
#include "runtime/mesh/mesh.h"
#include "runtime/optim/loss_scale.h"
#include "runtime/optim/optimizer.h"
#include "runtime/optim/schedule.h"
#include "runtime/plan/manifest.h"
#include "runtime/plan/price.h"
#include "runtime/state/finite_check.h"
#include "runtime/train/batches.h"
#include "runtime/train/peak_memory.h"
#include "runtime/train/train.h"

namespace ds {

class Trainer {
 public:
  /// Connects, plans, allocates, and fills parameters. The communicators belong to the caller, who aborts them when
  /// anything throws.
  Trainer(const JobSpec& spec, const TrainEnvironment& environment, Communicators& communicators);

  TrainResult Run();

 private:
  // trainer_setup.cc
  void MakePlans();
  std::unique_ptr<FileTier> MakeFiles() const;
  void Allocate();
  void PlaceState();
  void FillInitialState();
  void LoadState();
  void CheckSameData();
  void CheckSameCut();

  // trainer_machine.cc
  /// What the plan is priced with. Tells what of the machine file does not apply, and sets peak_flops_.
  Machine UseMachine();
  void ChooseMatMulAlgorithms();
  std::vector<Plan> StagesLike(const Plan& plan) const;

  // trainer.cc
  using Clock = std::chrono::steady_clock;
  StepRecord Step(Clock::time_point begin);
  std::optional<double> Decide(const StepSums& sums);
  void EndStep(const StepOutcome& outcome);
  StepInputs Inputs(bool training) const;
  void Record(StepRecord& record, const StepOutcome& outcome, double step_seconds, double data_seconds);
  Footprint MeasuredPeaks();
  Footprint Measured();
  bool IsLastStep() const { return state_.step >= spec_.training.steps; }

  // pending_updates.cc
  /// Does what the last step left to the next one: parameters and optimizer state are those of all steps then, and the
  /// next one begins with them. Collective; nothing is done where nothing is pending.
  void FinishUpdates();

  // validation.cc
  double ValidationLoss();

  // refused_step.cc
  enum class Refusal { none, overflow /* of scaled gradients (fp16) */, not_finite };
  /// Where a refused step's numbers stopped being finite. The same on every rank.
  struct Diagnosis {
    std::string text;
    int rank = -1;
    bool in_parameter = false;
    bool again = true;  ///< it is there each time that the step is computed
  };
  /// After a refused step: goes on, or throws what ends the job. Collective.
  void OnRefused(const StepInputs& inputs, const StepSums& sums);
  void TellOverflow(int64_t step, double scale);
  /// Runs the refused step again, watched. Collective.
  Diagnosis Diagnose(const StepInputs& refused, const StepSums& sums);
  Diagnosis Earliest(const std::vector<NonFinite>& of_rank) const;
  bool StepsEarly() const;
  Diagnosis NotReproduced(int64_t step, const StepSums& sums, const StepSums& again);
  [[noreturn]] void End(const std::string& kind, int rank, const std::string& message);
  void EventOf(int rank, const std::string& kind, const std::string& message);
  /// A checkpoint is never made of numbers that are not finite. Throws NumericalError.
  void CheckStateIsFinite() const;
  int64_t FirstNotFinite(const FiniteCheck& check, const StateRun& run) const;

  // trainer_checkpoint.cc
  std::string CheckpointRoot() const { return environment_.run_directory + "/checkpoints"; }
  bool CheckpointDue(bool stopping) const;
  /// Follows the write in flight: tells what was completed, throws where some rank failed.
  void FollowCheckpoint();
  void TellWritten();
  /// Takes a checkpoint of this step; returns the seconds that training waited.
  double TakeCheckpoint(bool last);
  /// Until no write is in flight. Throws what the write threw.
  void FinishCheckpoint();

  void Event(const std::string& kind, const std::string& message);  ///< of the whole job

  const JobSpec& spec_;
  const TrainEnvironment& environment_;
  Communicators& communicators_;

  const Mesh mesh_;
  ModelLayout layout_;
  Plan plan_, forward_plan_;
  std::optional<Plan> updates_plan_;  // none: steps leave nothing to the next
  std::optional<double> peak_flops_;  // a second, of this rank's device
  BatchReader train_data_;
  std::optional<BatchReader> validation_data_;
  PeakMemory peak_memory_;
  std::unique_ptr<FileTier> files_;  // null: the plan needs none
  std::unique_ptr<ParamStore> store_;
  std::unique_ptr<Arena> arena_;
  Memory workspace_;  // of a GPU's kernels
  std::vector<std::unique_ptr<Segment>> segments_;
  std::unique_ptr<Optimizer> optimizer_;
  Schedule schedule_;
  LossScale loss_scale_;
  PendingUpdate pending_;
  std::unique_ptr<Executor> executor_, forward_executor_, updates_executor_;

  TrainingState state_;
  // Of the step in progress:
  double lr_ = 0, grad_norm_ = 0;
  bool stop_agreed_ = false, checkpoint_failed_ = false;
  Refusal refusal_ = Refusal::none;
  ScaleChange scale_change_ = ScaleChange::none;
  // Of the run so far:
  int64_t gpu_peak_ = 0;  // bytes of the device in use, whoever uses them
  std::vector<double> step_ms_, tokens_per_second_, overhead_ms_;
  std::map<std::string, int64_t> bytes_moved_;
  int64_t updates_bytes_[kActionKinds] = {};  // moved by FinishUpdates since the last step
  std::string last_checkpoint_;
  int refused_in_a_row_ = 0;
  int64_t overflows_ = 0, overflows_untold_ = 0, overflow_told_at_ = 0;
  std::unique_ptr<BackgroundCheckpoints> background_;  // null: training waits for checkpoints
  bool wait_told_ = false;                             // that checkpoints come faster than they are written
};

}  // namespace ds
