// The training job of one rank, from the resolved spec to the last checkpoint. It knows neither agents nor gRPC: those
// stand behind Reporter and the communicator factory, so that a test runs sixteen ranks in one process.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/gpu.h"
#include "runtime/comm/communicator.h"
#include "runtime/job/job_spec.h"
#include "runtime/plan/machine_file.h"

namespace ds {

/// One line of metrics.jsonl, as the contract names its keys. Rank 0's record is the job's; other ranks report theirs
/// for health alone (loss and grad_norm are the same on every rank).
struct StepRecord {
  int64_t step = 0;  ///< from 1
  int64_t attempt = 1;
  double loss = 0;       ///< mean over the global batch's tokens
  double grad_norm = 0;  ///< before clipping
  double lr = 0;
  int64_t tokens = 0;  ///< so far
  double tokens_per_second = 0;
  double step_ms = 0, compute_ms = 0, comm_exposed_ms = 0, io_exposed_ms = 0;
  double data_ms = 0;         ///< part of step_ms spent on reading samples
  double overhead_ms = 0;     ///< part of step_ms outside kernels, communication, I/O and data: what the runtime costs
  std::optional<double> mfu;  ///< absent where the device's peak is unknown
  int64_t peak_device_bytes = 0, peak_host_bytes = 0, peak_file_bytes = 0;
  std::optional<double> validation_loss;
  std::optional<double> checkpoint_stall_ms;
  std::optional<double> loss_scale;  ///< fp16 only
  bool skipped = false;              ///< the optimizer did not step: overflow (fp16), or a loss that is not finite
};

/// What a rank tells while it runs, and is told. Called from the training thread; must return at once.
class Reporter {
 public:
  virtual ~Reporter() = default;
  virtual void OnState(const std::string& state) = 0;  ///< "starting", "connecting", "loading", "training", ...
  virtual void OnStep(const StepRecord& record) = 0;
  /// An event for events.jsonl. kind: "checkpoint", "resume", "overflow", "loss_scale_floor", ... Events of the whole
  /// job come from rank 0 alone, "nan_skipped" and "hardware_suspected" from the rank that they are about.
  virtual void OnEvent(const std::string& kind, const std::string& message) = 0;
  /// The job was asked to stop: finish the step, take a checkpoint if the spec says so, end. All ranks agree on the
  /// step through the step's own collectives, so ranks may learn of it at different times.
  virtual bool StopRequested() = 0;
};

struct MicroBatch;  // runtime/exec/executor.h

struct TrainEnvironment {
  int rank = 0, size = 1;
  int threads = 1;            ///< CPU threads of this rank
  std::string run_directory;  ///< OUTPUT/NAME/RUN-ID; checkpoints go below it
  std::string resume;         ///< a checkpoint's folder, already chosen and verified; empty: start anew
  int64_t attempt = 1;
  CommunicatorFactory communicators;         ///< of host memory
  Gpu* gpu = nullptr;                        ///< to train on, of the calling thread; null: the CPU
  int64_t gpu_idle_bytes = 0;                ///< of its memory that others use: before this process opened it
  CommunicatorFactory device_communicators;  ///< of the GPU's memory; empty without a GPU, or for a single rank
  Reporter* reporter = nullptr;
  std::optional<MachineFile> machine = {};  ///< what was measured of the machines; the same on every rank
  /// Called with the samples of this rank before each step (its number), for those who record what was trained on;
  /// may be empty.
  std::function<void(int64_t step, const std::vector<MicroBatch>& micro_batches)> on_batch = {};
};

/// What the summary compares: predicted and measured alike.
struct Footprint {
  double step_ms = 0;
  int64_t device_peak = 0, host_peak = 0, file_peak = 0;  ///< bytes
  std::map<std::string, int64_t> bytes_moved;             ///< by action kind, a step
};

struct TrainResult {
  int64_t steps = 0;
  double final_loss = 0;
  std::optional<double> validation_loss;
  double median_tokens_per_second = 0;
  double median_overhead_ms = 0;  ///< of StepRecord::overhead_ms
  bool stopped = false;           ///< ended by StopRequested before `training.steps`
  std::string checkpoint;         ///< the last one written; empty: none
  Footprint predicted, measured;
};

/// Numbers that are not finite ended the job. The rank that they are on throws this, its peers CommunicatorAborted.
class NumericalError : public RuntimeError {
 public:
  NumericalError(std::string kind, const std::string& message) : RuntimeError(message), kind_(std::move(kind)) {}
  /// "not_finite" (training.on_nan, or state that was to be saved) or "loss_scale" (fp16).
  const std::string& kind() const { return kind_; }

 private:
  std::string kind_;
};

/// Runs the job of this rank. Throws Error; before an error leaves, communicators are aborted so that peers end too.
TrainResult Train(const JobSpec& spec, const TrainEnvironment& environment);

}  // namespace ds
