// The step loop.
#include "runtime/train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "runtime/base/failpoint.h"
#include "runtime/optim/clip.h"
#include "runtime/plan/planner.h"
#include "runtime/plan/products.h"
#include "runtime/train/trace.h"

namespace ds {
namespace {

double SecondsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Steps over which the summary's medians are taken: the newest ones.
constexpr size_t kMedianWindow = 4096;

void Keep(std::vector<double>& values, double value, int64_t step) {
  if (values.size() < kMedianWindow)
    values.push_back(value);
  else
    values[static_cast<size_t>(step) % kMedianWindow] = value;
}

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

TrainResult Trainer::Run() {
  TrainResult result;
  result.predicted.step_ms = plan_.price.step_seconds * 1e3;
  result.predicted.device_peak = plan_.price.peak_bytes[static_cast<int>(Tier::device)];
  result.predicted.host_peak = plan_.price.peak_bytes[static_cast<int>(Tier::host)];
  result.predicted.file_peak = plan_.price.peak_bytes[static_cast<int>(Tier::file)];
  for (const Action& action : plan_.actions)
    if (action.bytes > 0) result.predicted.bytes_moved[NameOf(action.kind)] += action.bytes;

  environment_.reporter->OnState("training");
  // A step's time begins where the one before was measured, so that reporting counts; validation and checkpoints do
  // not.
  Clock::time_point begin = Clock::now();
  while (!IsLastStep() && !result.stopped) {
    StepRecord record = Step(begin);
    begin = Clock::now();
    const bool stopping = stop_agreed_ && !IsLastStep();
    const int64_t every = spec_.training.validate_every;
    if (every > 0 && (state_.step % every == 0 || IsLastStep()) && !stopping) {
      record.validation_loss = ValidationLoss();
      result.validation_loss = record.validation_loss;
      begin = Clock::now();
    }
    try {
      FollowCheckpoint();
      if (CheckpointDue(stopping)) {
        record.checkpoint_stall_ms = TakeCheckpoint(stopping || IsLastStep()) * 1e3;
        begin = Clock::now();
      }
    } catch (const Error&) {
      environment_.reporter->OnStep(record);  // the step was done
      throw;
    }
    environment_.reporter->OnStep(record);
    result.stopped = stopping;
  }
  FinishCheckpoint();

  result.steps = state_.step;
  result.final_loss = state_.final_loss;
  result.median_tokens_per_second = Median(tokens_per_second_);
  result.median_overhead_ms = Median(overhead_ms_);
  result.checkpoint = last_checkpoint_;
  result.measured = Measured();
  return result;
}

StepInputs Trainer::Inputs(bool training) const {
  StepInputs inputs;
  inputs.context.kernel.threads = environment_.threads;
  inputs.context.kernel.deterministic = spec_.training.deterministic;
  inputs.context.training = training;
  inputs.context.seed = spec_.seed;
  inputs.context.step = state_.step + (training ? 1 : 0);
  inputs.context.loss_scale = loss_scale_.scale();
  inputs.context.global_tokens = spec_.batch.train_batch_size * spec_.data.sequence_length;
  return inputs;
}

StepRecord Trainer::Step(Clock::time_point begin) {
  StepInputs inputs = Inputs(true);
  const int64_t step = inputs.context.step;
  const auto& profiled = spec_.training.profile_steps;
  inputs.trace = std::find(profiled.begin(), profiled.end(), step) != profiled.end();
  inputs.stop = environment_.reporter->StopRequested();
  inputs.checkpoint_failed = background_ && background_->failed();
  inputs.decide = [this](const StepSums& sums) { return Decide(sums); };
  inputs.clip = spec_.gradient_clipping;
  const Rates rates = schedule_.At(state_.optimizer_steps);
  lr_ = rates.lr;
  optimizer_->BeginStep(rates, state_.optimizer_steps);
  const Clock::time_point reading = Clock::now();
  inputs.micro_batches = train_data_.Read(state_.samples);
  if (environment_.on_batch) environment_.on_batch(state_.step + 1, inputs.micro_batches);
  const double data_seconds = SecondsSince(reading);

  const StepOutcome outcome = executor_->Run(inputs);
  if (refusal_ == Refusal::none)
    refused_in_a_row_ = 0;
  else
    OnRefused(inputs, outcome.sums);
  EndStep(outcome);
  if (inputs.trace)
    WriteTrace(environment_.run_directory + "/profile/step-" + std::to_string(step) + "-rank-" +
                   std::to_string(environment_.rank) + ".json",
               layout_, plan_, outcome.timeline);

  StepRecord record;
  record.skipped = !outcome.stepped;
  if (loss_scale_.enabled()) record.loss_scale = inputs.context.loss_scale;
  Record(record, outcome, SecondsSince(begin), data_seconds);
  if (FailpointsSet()) Failpoint("step:" + std::to_string(step) + "/end");
  return record;
}

// Called by every rank with the same sums: in the middle of the step on the CPU, after it on a GPU.
std::optional<double> Trainer::Decide(const StepSums& sums) {
  const double scale = loss_scale_.scale();
  grad_norm_ = std::sqrt(sums.squares) / scale;
  const bool finite = std::isfinite(sums.squares);
  // The loss is not scaled: no loss scale mends one that is not finite.
  const bool overflow = !finite && loss_scale_.enabled() && std::isfinite(sums.loss);
  refusal_ = overflow ? Refusal::overflow : finite && std::isfinite(sums.loss) ? Refusal::none : Refusal::not_finite;
  if (refusal_ != Refusal::not_finite) scale_change_ = loss_scale_.Update(overflow);
  if (refusal_ != Refusal::none) return std::nullopt;
  return ClipCoefficient(grad_norm_, spec_.gradient_clipping) / scale;
}

void Trainer::EndStep(const StepOutcome& outcome) {
  stop_agreed_ = outcome.sums.stop;
  checkpoint_failed_ = outcome.sums.checkpoint_failed;
  const int64_t global_tokens = spec_.batch.train_batch_size * spec_.data.sequence_length;
  ++state_.step;
  state_.samples += spec_.batch.train_batch_size;
  state_.tokens += global_tokens;
  state_.optimizer_steps += outcome.stepped ? 1 : 0;
  state_.loss_scale = loss_scale_.scale();
  state_.good_steps = loss_scale_.good_steps();
  state_.hysteresis_left = loss_scale_.hysteresis_left();
  state_.final_loss = outcome.sums.loss / static_cast<double>(global_tokens);
}

void Trainer::Record(StepRecord& record, const StepOutcome& outcome, double step_seconds, double data_seconds) {
  const Timeline& timeline = outcome.timeline;
  record.step = state_.step;
  record.attempt = environment_.attempt;
  record.loss = state_.final_loss;
  record.grad_norm = grad_norm_;
  record.lr = lr_;
  record.tokens = state_.tokens;
  record.tokens_per_second =
      static_cast<double>(spec_.batch.train_batch_size * spec_.data.sequence_length) / step_seconds;
  record.step_ms = step_seconds * 1e3;
  record.compute_ms = timeline.compute_seconds * 1e3;
  record.comm_exposed_ms = timeline.exposed_comm_seconds * 1e3;
  record.data_ms = data_seconds * 1e3;
  record.overhead_ms = record.step_ms - record.compute_ms - record.comm_exposed_ms - record.data_ms;
  if (peak_flops_) record.mfu = ModelFlopsOfStep(layout_, plan_.options) / (step_seconds * *peak_flops_);
  const Footprint peaks = MeasuredPeaks();
  record.peak_device_bytes = peaks.device_peak;
  record.peak_host_bytes = peaks.host_peak;

  Keep(step_ms_, record.step_ms, state_.step);
  Keep(tokens_per_second_, record.tokens_per_second, state_.step);
  Keep(overhead_ms_, record.overhead_ms, state_.step);
  // Of the fullest step: one that has no updates to do, the first or one after a skipped one, moves less.
  for (int kind = 0; kind < kActionKinds; ++kind) {
    const int64_t bytes = timeline.bytes[kind] + std::exchange(updates_bytes_[kind], 0);
    if (bytes == 0) continue;
    int64_t& most = bytes_moved_[NameOf(static_cast<ActionKind>(kind))];
    most = std::max(most, bytes);
  }
}

// On a CPU both tiers are the process's memory: what is taken of it for the host tier is known, the rest is the
// device's. A GPU's is all that is in use of it, less what was before this process came.
Footprint Trainer::MeasuredPeaks() {
  Footprint peaks;
  if (Gpu* gpu = environment_.gpu) {
    const Gpu::MemoryInfo memory = gpu->Memory();
    gpu_peak_ = std::max(gpu_peak_, memory.total - memory.free);
    peaks.device_peak = std::max<int64_t>(0, gpu_peak_ - environment_.gpu_idle_bytes);
    peaks.host_peak = peak_memory_.Bytes();
    return peaks;
  }
  peaks.host_peak = plan_.price.peak_bytes[static_cast<int>(Tier::host)];
  peaks.device_peak = std::max<int64_t>(0, peak_memory_.Bytes() - peaks.host_peak);
  return peaks;
}

Footprint Trainer::Measured() {
  Footprint measured = MeasuredPeaks();
  measured.step_ms = Median(step_ms_);
  measured.file_peak = files_ ? files_->bytes() : 0;
  measured.bytes_moved = bytes_moved_;
  return measured;
}

void Trainer::Event(const std::string& kind, const std::string& message) {
  if (environment_.rank == 0) environment_.reporter->OnEvent(kind, message);
}

}  // namespace ds
