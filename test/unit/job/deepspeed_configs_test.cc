// Configurations in the styles that people have (Hugging Face's trainer, Axolotl, LLaMA-Factory, GPT-NeoX, BLOOM, older
// DeepSpeed), in test/data/deepspeed/configs: what each is read as, or why it is refused.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <sstream>

#include "runtime/base/file.h"
#include "runtime/base/json.h"
#include "runtime/job/names.h"
#include "test/catch.h"
#include "test/unit/job/spec_helpers.h"

namespace ds {
namespace {

const std::string kFolder = std::string(DS_SOURCE_DIR) + "/test/data/deepspeed/configs";

/// A GPT-2 of 768 hidden on 4 ranks, trained as `file` says.
JobSpec Read(const std::string& file, const std::vector<Override>& overrides) {
  const std::string job =
      "model: {preset: gpt2-124m}\ndata: {train: t.txt}\ntraining: {steps: 600}\ndeepspeed: " + file + "\n";
  return ParseJobSpec(job, "job.yaml", kFolder, overrides, 4);
}

std::string Number(double value) { return JsonNumber(value); }

/// What is kept below the device, and in which folders; nothing where all is on it.
std::string Offloaded(const JobSpec& spec) {
  std::string out;
  const auto add = [&](const char* what, OffloadTarget target, const std::string& share) {
    if (target != OffloadTarget::none) out += std::string(", ") + what + " on " + NameOf(target, kOffloadNames) + share;
  };
  add("optimizer", spec.zero.offload_optimizer, " " + Number(spec.zero.offload_ratio));
  add("parameters", spec.zero.offload_param, "");
  add("activations", spec.memory.offload_activations, "");
  for (const std::string& folder : spec.memory.nvme_path)
    out += ", " + folder + " by " + std::to_string(spec.memory.file_block_bytes) + " x " +
           std::to_string(spec.memory.file_queue_depth);
  return out;
}

/// What a configuration decides, on one line.
std::string Summary(const JobSpec& spec) {
  static const char* const precisions[] = {"fp32", "bf16", "fp16"};
  static const char* const optimizers[] = {"Adam", "AdamW", "SGD", "Lion", "Adagrad", "RMSprop"};
  const auto whole = [](int64_t value) { return value == INT64_MAX ? std::string("max") : std::to_string(value); };
  std::string out = precisions[static_cast<int>(spec.precision)];
  if (spec.precision == Precision::fp16) {
    out += " 2^" + whole(spec.loss_scale.initial_power) + "/" + whole(spec.loss_scale.window) + "/" +
           whole(spec.loss_scale.hysteresis);
  }
  out += ", " + whole(spec.batch.train_batch_size) + "=" + whole(spec.batch.micro_batch_size) + "x" +
         whole(spec.batch.accumulation) + "x4, clip " + Number(spec.gradient_clipping) + ", log " +
         whole(spec.training.log_every) + ", ZeRO-" + whole(spec.zero.stage);
  for (const int64_t size :
       {spec.zero.reduce_bucket_size, spec.zero.allgather_bucket_size, spec.zero.prefetch_bucket_size,
        spec.zero.param_persistence_threshold, spec.zero.model_persistence_threshold, spec.zero.max_live_parameters,
        spec.zero.max_reuse_distance}) {
    out += " " + whole(size);
  }
  out += Offloaded(spec);
  const OptimizerConfig& o = spec.optimizer;
  out += std::string(", ") + optimizers[static_cast<int>(o.kind)] + " " + Number(o.lr) + " " + Number(o.beta1) + " " +
         Number(o.beta2) + " " + Number(o.eps) + " " + Number(o.weight_decay);
  if (spec.scheduler.kind == SchedulerKind::none) return out;
  out += ", " + NameOf(spec.scheduler.kind, kSchedulerNames);
  for (const auto& [name, value] : spec.scheduler.parameters) out += " " + name + "=" + Number(value);
  return out;
}

/// What `file` is read as, with notes, or the lines of its refusal; places without the folder and the file's name.
std::string Outcome(const std::string& file, const std::vector<Override>& overrides) {
  std::string out = "## " + file;
  for (const Override& change : overrides) out += " --set " + change.key + "=" + change.value;
  try {
    const JobSpec spec = Read(file, overrides);
    CHECK(ParseJobSpec(ToYaml(spec), "job.yaml", "/", {}, 4) == spec);
    out += "\n" + Summary(spec) + "\n";
    for (const std::string& note : spec.notes) out += "  " + note + "\n";
  } catch (const UsageError& error) {
    std::string lines = error.what();
    const std::string place = kFolder + "/" + file + ":";
    for (size_t at; (at = lines.find(place)) != std::string::npos;) lines.erase(at, place.size());
    for (size_t at = 0; (at = lines.find('\n', at)) != std::string::npos; at += 3) lines.replace(at, 1, "\n  ");
    out += "\nrefused\n  " + lines + "\n";
  }
  return out;
}

TEST_CASE("DeepSpeed configurations in the styles that people have are read, or refused with the reason") {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) files.push_back(entry.path().filename());
  std::sort(files.begin(), files.end());
  CHECK(files.size() >= 28);
  std::string outcomes =
      "# What each file of configs/ is read as (precision, batch, clipping, log_every, ZeRO with its sizes, what is "
      "offloaded,\n"
      "# optimizer, schedule; then the notes of --dry-run), or why it is refused. Written by DS_UPDATE_GOLDEN=1 "
      "build/bin/test-unit-job.\n";
  for (const std::string& file : files) {
    const std::string outcome = Outcome(file, {});
    outcomes += "\n" + outcome;
    if (Has(outcome, "auto has no trainer's arguments")) {
      outcomes += "\n" + Outcome(file, {{"deepspeed.train_micro_batch_size_per_gpu", "8"}});
    }
  }
  const std::string path = std::string(DS_SOURCE_DIR) + "/test/data/deepspeed/expected.txt";
  if (const char* update = std::getenv("DS_UPDATE_GOLDEN"); update != nullptr && std::string(update) == "1") {
    WriteFileAtomically(path, outcomes);
  } else {
    CHECK(outcomes == ReadFile(path));
  }
}

TEST_CASE("a configuration's notes name each key once") {
  for (const char* file : {"hf_trainer_zero3.json", "legacy_zero3.json", "sections_off.json", "llamafactory_z3.json"}) {
    CAPTURE(file);
    std::set<std::string> named;
    for (const std::string& note : Read(file, {{"deepspeed.train_micro_batch_size_per_gpu", "2"}}).notes) {
      std::istringstream names(note.substr(0, note.find(": ")));
      for (std::string name; names >> name;) {
        if (name.compare(0, 10, "deepspeed.") != 0) break;
        if (name.back() == ',') name.pop_back();
        CAPTURE(note, name);
        CHECK((named.insert(name).second || Has(note, "never reaches its top")));
      }
    }
    CHECK(named.size() > 5);
  }
}

TEST_CASE("other programs' files are told from job files too") {
  const auto failure = [](const std::string& file) {
    try {
      LoadJobSpec(kFolder + "/" + file, {}, 2);
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string("read");
  };
  CHECK(Has(failure("neox_whole.yml"), "neox_whole.yml:2:1: this is a GPT-NeoX configuration"));
  CHECK(Has(failure("axolotl.yml"), "this is an Axolotl configuration"));
  CHECK(Has(failure("accelerate.yaml"), "this is a configuration of Hugging Face Accelerate"));
  CHECK(Has(failure("llamafactory_sft.yaml"), "this is a LLaMA-Factory configuration"));
  for (const char* file : {"bloom.json", "hf_trainer_zero3.json", "neox_deepspeed_keys.yml", "sections_off.json"}) {
    CAPTURE(file);
    CHECK(Has(failure(file), "this is a DeepSpeed configuration, not a job file; name it in one"));
    CHECK_FALSE(Has(failure(file), "\n"));
  }
}

}  // namespace
}  // namespace ds
