// What happens before the first step: plans, memory, parameters.
#include "runtime/base/checksum.h"
#include "runtime/base/error.h"
#include "runtime/job/job_spec.h"
#include "runtime/job/offload.h"
#include "runtime/job/yaml.h"
#include "runtime/plan/planner.h"
#include "runtime/plan/stages.h"
#include "runtime/train/state_transfer.h"
#include "runtime/train/trainer.h"

namespace ds {

Trainer::Trainer(const JobSpec& spec, const TrainEnvironment& environment, Communicators& communicators)
    : spec_(spec),
      environment_(environment),
      communicators_(communicators),
      mesh_(MeshOf(spec.parallel, environment.size)),
      train_data_(spec, spec.data.train, true, mesh_.data_rank(environment.rank), mesh_.data_width()),
      schedule_(spec.scheduler, spec.optimizer),
      loss_scale_(spec.loss_scale, spec.precision == Precision::fp16) {
  if (spec.training.validate_every > 0) {
    if (spec.data.validation.empty())
      throw UsageError("training.validate_every is " + std::to_string(spec.training.validate_every) +
                       ", but data.validation names no files");
    validation_data_.emplace(spec, spec.data.validation, false, mesh_.data_rank(environment.rank), mesh_.data_width());
  }
  environment_.reporter->OnState("loading");
  CheckSameData();
  MakePlans();
  CheckSameCut();
  ChooseMatMulAlgorithms();
  Allocate();
  LoadState();
}

/// A rank whose files are others would train on other samples at the same positions, and nobody would see it.
void Trainer::CheckSameData() {
  const uint64_t checksum = Checksum(train_data_.identity());
  const double own[2] = {static_cast<double>(checksum >> 32), static_cast<double>(checksum & 0xffffffff)};
  std::vector<double> all(static_cast<size_t>(environment_.size) * 2);
  communicators_.control->AllGather(Tensor::Of(const_cast<double*>(own), Shape{2}),
                                    Tensor::Of(all.data(), Shape{static_cast<int64_t>(all.size())}));
  for (int rank = 1; rank < environment_.size; ++rank) {
    const size_t at = static_cast<size_t>(rank) * 2;
    if (all[at] == all[0] && all[at + 1] == all[1]) continue;
    throw UsageError("data.train is not the same for rank 0 and rank " + std::to_string(rank) + " (rank " +
                     std::to_string(environment_.rank) + " reads " + train_data_.identity() +
                     "); every node must see the same files");
  }
}

void Trainer::MakePlans() {
  if (LeavesPlacementOpen(spec_))
    throw RuntimeError(
        "a rank was given a job whose `auto` places nobody chose (a defect of DeepShard, please report it)");
  layout_ = LayoutOf(spec_, environment_.size);
  Gpu* const gpu = environment_.gpu;
  if (spec_.training.fp8 && gpu && !gpu->MultipliesFp8())
    throw UsageError("training.fp8: " + gpu->name() +
                     " has no 8-bit products, which need compute capability 8.9 or more; write training.fp8: false");
  const Machine machine = UseMachine();
  PlanOptions options =
      PlanOptionsOf(spec_, environment_.rank, environment_.size, gpu ? gpu->device().kind : DeviceKind::cpu, machine);
  plan_ = BuildPlan(layout_, options, machine);
  if (options.pipeline.stages > 1 && environment_.rank == 0)  // whose prediction is the job's
    plan_.price = StagesLike(plan_).front().price;
  // The plan counts what the libraries have taken by now too.
  CheckFits(spec_, layout_, plan_, gpu ? gpu->Memory().total - environment_.gpu_idle_bytes : AvailableMemory(),
            machine);
  if (HasPending(plan_)) updates_plan_ = BuildPlan(layout_, UpdatesOnly(options), machine);
  options.training = false;
  forward_plan_ = BuildPlan(layout_, options, machine);
  if (ReadsSamples(layout_, options)) return;
  train_data_.SkipSamples();
  if (validation_data_) validation_data_->SkipSamples();
}

/// Stages that were cut elsewhere would wait for each other's messages without end.
void Trainer::CheckSameCut() {
  if (plan_.options.pipeline.stages == 1) return;
  std::vector<double> own(plan_.options.pipeline.begin.begin(), plan_.options.pipeline.begin.end());
  std::vector<double> all(own.size() * static_cast<size_t>(environment_.size));
  communicators_.control->AllGather(Tensor::Of(own.data(), Shape{static_cast<int64_t>(own.size())}),
                                    Tensor::Of(all.data(), Shape{static_cast<int64_t>(all.size())}));
  for (size_t rank = 0; rank < static_cast<size_t>(environment_.size); ++rank) {
    for (size_t chunk = 0; chunk < own.size(); ++chunk) {
      const double theirs = all[rank * own.size() + chunk], first = all[chunk];
      if (theirs == first) continue;
      throw UsageError("the pipeline is cut at segment " + std::to_string(static_cast<int>(first)) +
                       " by rank 0 and at segment " + std::to_string(static_cast<int>(theirs)) + " by rank " +
                       std::to_string(rank) +
                       ": their machines differ; write parallel.partition: uniform, which no machine decides");
    }
  }
}

/// Room for the file tier of all plans: that of a step has room for the updates that it leaves.
std::unique_ptr<FileTier> Trainer::MakeFiles() const {
  const int file = static_cast<int>(Tier::file);
  const int64_t bytes = ResidentFileBytes(layout_, plan_) +
                        FileRoundUp(std::max(plan_.arena_bytes[file], forward_plan_.arena_bytes[file]));
  if (bytes == 0) return nullptr;
  FileTierOptions options;
  options.paths = spec_.memory.nvme_path;
  options.block_bytes = spec_.memory.file_block_bytes;
  options.queue_depth = static_cast<int>(spec_.memory.file_queue_depth);
  return std::make_unique<FileTier>(std::move(options), bytes, "rank " + std::to_string(environment_.rank));
}

void Trainer::Allocate() {
  peak_memory_ = PeakMemory();
  Gpu* const gpu = environment_.gpu;
  files_ = MakeFiles();
  if (files_) Event("offload", files_->Describe());
  store_ = std::make_unique<ParamStore>(layout_, plan_, gpu, files_.get());
  std::vector<const Plan*> plans = {&plan_, &forward_plan_};
  if (updates_plan_) plans.push_back(&*updates_plan_);
  arena_ = std::make_unique<Arena>(plans, gpu, files_.get());
  workspace_ = Memory(plan_.price.workspace_bytes, gpu);
  const MicroBatchShape shape{spec_.batch.micro_batch_size, spec_.data.sequence_length};
  const SegmentOptions options{spec_.model, plan_.options.compute, shape, gpu ? gpu->device() : Device{}, gpu};
  const StageParts parts = PartsOf(layout_, plan_.options);
  for (size_t s = 0; s < layout_.segments.size(); ++s)
    segments_.push_back(parts.segments[s] ? MakeSegment(layout_.segments[s], options) : nullptr);
  if (plan_.options.snapshot)
    background_ = std::make_unique<BackgroundCheckpoints>(
        BackgroundCheckpoints::Options{CheckpointRoot(), spec_.checkpoint.keep, plan_.price.snapshot_bytes,
                                       environment_.attempt, KernelContext{environment_.threads}},
        *communicators_.checkpoint);
  optimizer_ = std::make_unique<Optimizer>(spec_.optimizer, layout_, plan_.options.rank);
  PlaceState();

  auto executor = [&](const Plan& plan) {
    const BindContext bind{layout_, plan, *store_, *arena_, shape, spec_.model.hidden};
    return MakeExecutor({bind, segments_, optimizer_.get(), communicators_, environment_.attempt, gpu, files_.get(),
                         gpu ? workspace_.Bytes(0, workspace_.bytes()) : Tensor(), &pending_});
  };
  executor_ = executor(plan_);
  forward_executor_ = executor(forward_plan_);
  if (updates_plan_) updates_executor_ = executor(*updates_plan_);
}

/// Pages of the host go where the optimizer's threads are, while nothing has touched them.
void Trainer::PlaceState() {
  for (const Buffer& buffer : plan_.buffers) {
    if (buffer.state != StateKind::master || buffer.kind != BufferKind::resident) continue;
    const int unit = buffer.unit;
    int slot = 0;  // the step reads the first gradient of a unit
    while (layout_.slots[slot].unit != unit) ++slot;
    optimizer_->PlaceUnit(unit, buffer.whole,
                          {store_->Find(unit, StateKind::gradient, slot), store_->Find(unit, StateKind::master),
                           store_->Find(unit, StateKind::moment1), store_->Find(unit, StateKind::moment2),
                           store_->Find(unit, StateKind::working)});
  }
}

namespace {

/// A key of a resolved spec; empty where it has none.
std::string KeyIn(const std::string& job_yaml, std::initializer_list<const char*> path) {
  const Value root = ParseYaml(job_yaml, "job");
  const Value* at = &root;
  for (const char* key : path) {
    at = at->Find(key);
    if (!at) return "";
  }
  return at->text;
}

/// deepspeed.optimizer.type. Adam and AdamW differ in the decay only: one name for both.
std::string OptimizerIn(const std::string& job_yaml) {
  const std::string type = KeyIn(job_yaml, {"deepspeed", "optimizer", "type"});
  return type == "Adam" ? "AdamW" : type;
}

/// Whether blocks multiplied in 8 bits; checkpoints from before the key existed: no.
bool Fp8In(const std::string& job_yaml) { return KeyIn(job_yaml, {"training", "fp8"}) == "true"; }

/// Whether attention stopped at the ends of documents; checkpoints from before the key existed: no.
bool ResetsAttentionIn(const std::string& job_yaml) { return KeyIn(job_yaml, {"data", "reset_attention"}) == "true"; }

/// Moments of one optimizer mean nothing to another.
void CheckSameOptimizer(const JobSpec& spec, const CheckpointReader& reader, const std::string& folder) {
  const std::string was = OptimizerIn(reader.state().job_yaml), is = OptimizerIn(ToYaml(spec));
  if (was == is) return;
  throw UsageError("checkpoint " + folder + ": its optimizer state is of " + was + ", deepspeed.optimizer.type is " +
                   is + "; write " + was + ", or train anew");
}

}  // namespace

/// On the device: from the host's memory a GPU's share of a large model takes seconds.
void Trainer::FillInitialState() {
  Gpu* const gpu = environment_.gpu;
  KernelContext kernel{environment_.threads};
  if (!gpu) return store_->Fill(InitialState(spec_.seed, kernel));
  const GpuStream stream(*gpu);
  kernel.stream = stream.get();
  kernel.workspace = workspace_.Bytes(0, workspace_.bytes()).data;
  kernel.workspace_bytes = workspace_.bytes();
  store_->Fill(InitialState(spec_.seed, kernel), &kernel);
  gpu->Synchronize(stream.get());
}

void Trainer::LoadState() {
  if (environment_.resume.empty()) {
    FillInitialState();
    state_.seed = spec_.seed;
  } else {
    const CheckpointReader reader(environment_.resume);
    CheckCompatible(layout_, MomentCount(spec_.optimizer), reader, environment_.resume);
    CheckSameOptimizer(spec_, reader, environment_.resume);
    store_->Fill(CheckpointSource(reader));
    state_ = reader.state();
    if (!state_.data.empty() && state_.data != train_data_.identity())
      Event("data_changed", "data.train was " + state_.data + " when " + environment_.resume +
                                " was written, and is now " + train_data_.identity() +
                                ": samples differ from here on; position " + std::to_string(state_.samples) +
                                " is kept");
    loss_scale_.Restore(state_.loss_scale, state_.good_steps, state_.hysteresis_left);
    std::string message = "step " + std::to_string(state_.step) + " from " + environment_.resume;
    if (state_.seed != spec_.seed)
      message += "; job.seed was " + std::to_string(state_.seed) + " and is now " + std::to_string(spec_.seed) +
                 ": data order and dropout differ from here on";
    if (const bool was = Fp8In(state_.job_yaml); was != spec_.training.fp8)
      message += std::string("; training.fp8 was ") + (was ? "true" : "false") + " and is now " +
                 (was ? "false" : "true") + ": products round otherwise from here on";
    if (const bool was = ResetsAttentionIn(state_.job_yaml); was != spec_.data.reset_attention)
      message += std::string("; data.reset_attention was ") + (was ? "true" : "false") + " and is now " +
                 (was ? "false" : "true") + ": what a token sees differs from here on";
    if (IsLastStep())
      message += "; training.steps is " + std::to_string(spec_.training.steps) + ": nothing is left to train";
    Event("resume", message);
    state_.seed = spec_.seed;
  }
  state_.data_width = mesh_.data_width();
  state_.data = train_data_.identity();
  state_.job_yaml = ToYaml(spec_);
}

}  // namespace ds
