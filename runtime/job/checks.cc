#include "runtime/job/checks.h"

#include <string>

namespace ds {
namespace {

std::string Text(int64_t value) { return std::to_string(value); }

void CheckMissing(const JobSpec& spec, Problems& problems) {
  const auto need = [&](const char* key, bool given, const char* what) {
    if (!given && problems.Good({key})) problems.Add(key, std::string("missing; write ") + what);
  };
  const bool preset = problems.Good({"model.preset"}) && problems.Good({"model"});
  if (preset) {
    need("model.layers", spec.model.layers > 0, "the number of blocks, or a model.preset");
    need("model.hidden", spec.model.hidden > 0, "the width of the model, or a model.preset");
    need("model.heads", spec.model.heads > 0, "the number of attention heads, or a model.preset");
    if (problems.Good({"model.max_positions", "data.sequence_length", "data"})) {
      need("data.sequence_length", spec.data.sequence_length > 0, "the tokens of a sample, or model.max_positions");
    }
  }
  if (problems.Good({"data"}))
    need("data.train", !spec.data.train.empty(), "a path to text, JSON lines or token files");
  if (problems.Good({"training"})) need("training.steps", spec.training.steps > 0, "the number of optimizer steps");
}

void CheckHeads(const ModelConfig& model, Problems& problems) {
  if (model.heads < 1 || !problems.Good({"model.heads", "model.hidden", "model.kv_heads"})) return;
  if (model.hidden > 0 && model.hidden % model.heads != 0) {
    if (problems.Blamed({"model.hidden", "model.heads"}) == "model.heads")
      problems.Add("model.heads", "model.hidden, which is " + Text(model.hidden) + ", is no multiple of " +
                                      Text(model.heads) + "; write a divisor of it");
    else
      problems.Add("model.hidden", Text(model.hidden) + " is no multiple of model.heads, which is " +
                                       Text(model.heads) + "; write one, such as " +
                                       Text((model.hidden / model.heads + 1) * model.heads));
  } else if (model.position == PositionKind::rope && model.hidden > 0 && model.head_size() % 2 != 0) {
    problems.Add("model.heads", "rotary embedding turns pairs, and hidden / heads = " + Text(model.head_size()) +
                                    " is odd; write a number of heads that makes it even");
  }
  if (model.kv_heads > 0 && model.heads % model.kv_heads != 0) {
    if (problems.Blamed({"model.kv_heads", "model.heads"}) == "model.heads")
      problems.Add("model.heads", Text(model.heads) + " is no multiple of model.kv_heads, which is " +
                                      Text(model.kv_heads) + "; write one");
    else
      problems.Add("model.kv_heads", "model.heads, which is " + Text(model.heads) +
                                         ", is no multiple of kv_heads, which is " + Text(model.kv_heads) +
                                         "; write a divisor of it");
  }
}

void CheckLengths(const JobSpec& spec, Problems& problems) {
  if (!problems.Good({"data.sequence_length", "model.max_positions", "model.position"})) return;
  if (spec.model.position == PositionKind::learned && spec.data.sequence_length > spec.model.max_positions) {
    problems.Add("data.sequence_length",
                 Text(spec.data.sequence_length) + " is more than model.max_positions, which is " +
                     Text(spec.model.max_positions) + ", and learned positions end there; write at most that");
  }
}

void CheckTraining(const JobSpec& spec, Problems& problems) {
  if (spec.training.validate_every > 0 && spec.data.validation.empty() &&
      problems.Good({"training.validate_every", "data.validation"})) {
    problems.Add("training.validate_every", "there is no validation data; write data.validation, or 0");
  }
  if (spec.training.fp8 && spec.precision != Precision::bf16 && problems.Good({"training.fp8"})) {
    problems.Add("training.fp8", "8-bit products are of bf16 tensors, and this job computes in " +
                                     std::string(spec.precision == Precision::fp16 ? "fp16" : "fp32") +
                                     "; write deepspeed.bf16.enabled: true, or training.fp8: false");
  }
  for (int64_t step : spec.training.profile_steps) {
    if (step <= spec.training.steps || !problems.Good({"training.profile_steps", "training.steps"})) continue;
    problems.Add("training.profile_steps", "there is no step " + std::to_string(step) +
                                               " to trace: training.steps is " + std::to_string(spec.training.steps) +
                                               "; write a step up to that");
    break;
  }
  const RestartBudgets& restarts = spec.launch.restarts;
  if (problems.Good({"launch.restarts", "launch.min_nodes"}) && restarts.node.value_or(0) > 0 &&
      !spec.launch.min_nodes) {
    problems.Add("launch.restarts",
                 "a lost node does not come back: a budget for node needs launch.min_nodes, with which "
                 "the job goes on without it");
  }
  if (problems.Good({"launch.suspect_seconds", "launch.lease_seconds"}) &&
      spec.launch.suspect_seconds > spec.launch.lease_seconds) {
    problems.Add("launch.suspect_seconds",
                 "more than launch.lease_seconds, after which a node is lost; write at most that");
  }
}

}  // namespace

void CheckSpec(const JobSpec& spec, Problems& problems) {
  CheckMissing(spec, problems);
  CheckHeads(spec.model, problems);
  CheckLengths(spec, problems);
  CheckTraining(spec, problems);
}

}  // namespace ds
