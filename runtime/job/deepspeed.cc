#include "runtime/job/deepspeed.h"

#include <cmath>

#include "runtime/job/batch.h"
#include "runtime/job/deepspeed_reader.h"
#include "runtime/job/foreign.h"
#include "runtime/job/offload.h"
#include "runtime/job/optimizers.h"

namespace ds {
namespace {

void ResolvePrecision(const DeepSpeedDraft& draft, Problems& problems) {
  if (draft.fp16 && draft.bf16) {
    problems.Add("deepspeed.fp16.enabled", "bf16.enabled is true as well; enable one of them");
  }
  draft.spec.precision = draft.bf16 ? Precision::bf16 : draft.fp16 ? Precision::fp16 : Precision::fp32;
  const LossScaleConfig& scale = draft.spec.loss_scale;
  if (draft.fp16 && scale.fixed == 0 && scale.min_scale > std::ldexp(1.0, scale.initial_power)) {
    problems.Add("deepspeed.fp16.min_loss_scale",
                 "above the scale that training begins with, 2 to the power of "
                 "fp16.initial_scale_power, which is " +
                     std::to_string(scale.initial_power) + "; write at most that");
  }
}

/// Keys that say again what another section of the job says.
void CheckEqual(const DeepSpeedDraft& draft, const Value& section, Problems& problems) {
  const auto check = [&](const char* key, std::optional<int64_t> here, const char* other, int64_t there) {
    if (!here || *here == there) return;
    problems.Add(key, "not equal to " + std::string(other) + ", which is " + std::to_string(there) +
                          "; write the same in both, or leave this key out");
  };
  const JobSpec& spec = draft.spec;
  const bool autotp = draft.autotp_size && *draft.autotp_size != 0;
  check("deepspeed.sequence_parallel_size", draft.sequence_parallel_size, "parallel.sequence", spec.parallel.sequence);
  check("deepspeed.tensor_parallel.autotp_size", autotp ? draft.autotp_size : std::nullopt, "parallel.tensor",
        spec.parallel.tensor);
  const bool shorter = FindPath(section, "tensor_parallel.tp") != nullptr;
  check(shorter ? "deepspeed.tensor_parallel.tp.tp_size" : "deepspeed.tensor_parallel.tensor_parallel.tp_size",
        draft.tp_size, "parallel.tensor", spec.parallel.tensor);
  check("deepspeed.pipeline.stages", draft.pipeline_stages, "parallel.pipeline", spec.parallel.pipeline);
  if (problems.Good({"model.vocabulary", "model.preset"})) {
    check("deepspeed.vocabulary_size", draft.vocabulary_size, "model.vocabulary", spec.model.vocabulary);
  }
}

void ResolveLogEvery(const DeepSpeedDraft& draft, const Value& root) {
  if (!draft.steps_per_print) return;
  const Value* log_every = FindPath(root, "training.log_every");
  if (log_every == nullptr || log_every->is_null()) {
    draft.spec.training.log_every = *draft.steps_per_print;
  } else {
    draft.spec.notes.push_back("deepspeed.steps_per_print: training.log_every is written too, and wins.");
  }
}

constexpr int64_t kAllgatherSize = 500'000'000;  // DeepSpeed's default

void ResolveAllgatherSize(const DeepSpeedDraft& draft, Problems& problems) {
  if (!draft.allgather_size) return;
  if (!draft.zero_switch) {
    if (*draft.allgather_size == kAllgatherSize) return;  // the default: of no effect, and of no harm
    return problems.Add("deepspeed.allgather_size",
                        "of use beside zero_optimization: true only; write zero_optimization.allgather_bucket_size");
  }
  draft.spec.zero.allgather_bucket_size = *draft.allgather_size;
  draft.spec.notes.push_back(
      "deepspeed.allgather_size: another spelling, read as deepspeed.zero_optimization.allgather_bucket_size.");
}

/// "auto" sizes that Hugging Face's trainer takes from the model's width: buckets of hidden x hidden elements; under
/// stage 3 a prefetch of 0.9 times that, and parameters below 10 hidden kept whole. Under other stages these two are of
/// no effect and stay DeepSpeed's defaults.
void ResolveWidths(const DeepSpeedDraft& draft) {
  ZeroConfig& zero = draft.spec.zero;
  const int64_t hidden = draft.spec.model.hidden;
  if (hidden < 1 || hidden > 1'000'000'000) return;  // an error already
  struct Size {
    const char* path;
    int64_t& size;
    int64_t meant;
    const char* how;
    bool any_stage;
  };
  const Size sizes[] = {
      {"reduce_bucket_size", zero.reduce_bucket_size, hidden * hidden, "hidden x hidden", true},
      {"stage3_prefetch_bucket_size", zero.prefetch_bucket_size,
       hidden * hidden / 10 * 9 + hidden * hidden % 10 * 9 / 10, "0.9 x hidden x hidden", false},
      {"stage3_param_persistence_threshold", zero.param_persistence_threshold, 10 * hidden, "10 x hidden", false}};
  for (const std::string& path : draft.autos_of_width) {
    for (const Size& size : sizes) {
      if (path != std::string("zero_optimization.") + size.path) continue;
      const bool follows = size.any_stage || zero.stage == 3;
      if (follows) size.size = size.meant;
      draft.spec.notes.push_back("deepspeed." + path + ": auto is " +
                                 (follows ? std::to_string(size.size) + ", " + size.how
                                          : FindDeepSpeedKey(path)->fallback + ", DeepSpeed's default") +
                                 ".");
    }
  }
}

}  // namespace

void ReadDeepSpeed(const Value& root, const std::string& folder, int64_t ranks, JobSpec& spec, Problems& problems) {
  static const Value none;
  const Value* section = root.Find("deepspeed");
  if (section == nullptr) section = &none;
  if (section->kind != Value::Kind::map && !section->is_null()) {
    return problems.Add("deepspeed",
                        ValueError(*section, "a section, or a path to a DeepSpeed configuration, is wanted"));
  }
  if (const std::string foreign = DescribeForeign(*section, "deepspeed"); !foreign.empty()) {
    return problems.Add("deepspeed", ValueError(*section, foreign));
  }
  DeepSpeedDraft draft(spec);
  DeepSpeedReader(draft, problems).Read(*section);
  ResolvePrecision(draft, problems);
  CheckEqual(draft, *section, problems);
  ResolveLogEvery(draft, root);
  ResolveAllgatherSize(draft, problems);
  ResolveWidths(draft);
  ResolveOffload(draft, root, folder, problems);
  ResolveBatch(draft, ranks, problems);
  const Value* optimizer = section->Find("optimizer");
  ReadOptimizer(optimizer != nullptr ? *optimizer : none, spec, problems);
  const Value* scheduler = section->Find("scheduler");
  ReadScheduler(scheduler != nullptr ? *scheduler : none, spec, problems);
}

}  // namespace ds
