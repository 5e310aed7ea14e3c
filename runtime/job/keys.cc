#include "runtime/job/keys.h"

#include "runtime/base/checksum.h"
#include "runtime/job/key_rows.h"
#include "runtime/job/key_sections.h"

namespace ds {

using namespace key_rows;

namespace {

std::string ReadJobName(const Value& value) {
  const std::string& name = AsString(value);
  bool good = !name.empty() && name.size() <= 200 && name[0] != '-' && name[0] != '.';
  for (const char c : name) good = good && c != '/' && static_cast<unsigned char>(c) >= 0x20 && c != 0x7F;
  if (!good) {
    throw ValueError(value,
                     "not a folder's name; write 1 to 200 bytes without '/' or control characters that do not begin "
                     "with '-' or '.'");
  }
  return name;
}

std::string ReadTokenizer(const Value& value) {
  if (AsString(value).empty()) throw ValueError(value, "an empty name; write bytes or a SentencePiece model's file");
  return value.text;
}

std::string ReadTokenizerId(const Value& value) {
  const std::string& id = AsString(value);
  const bool file = id.size() == 19 && id.starts_with("sp-") && ParseChecksum(id.substr(3));
  if (id != "bytes" && !file)
    throw ValueError(value, "no tokenizer's id; leave it out, or write bytes or what `ds-convert tokenizer` printed");
  return id;
}

Key SeedKey() {
  return Row(
      "job.seed", "whole number from 0 to 2^64 - 1", nullptr,
      "initial weights, data order and dropout masks depend on seed, model and global batch only, never on the layout",
      [](JobSpec& spec, const Value& value) { spec.seed = AsUnsigned(value); },
      [](const JobSpec& spec) { return std::to_string(spec.seed); });
}

Key ProfileKey() {
  return Row(
      "training.profile_steps", "none, a step, or a list of steps", "none",
      "steps whose actions are traced: `profile/step-N-rank-R.json` in the run directory, for chrome://tracing or "
      "Perfetto",
      [](JobSpec& spec, const Value& value) {
        spec.training.profile_steps.clear();
        if (value.kind == Value::Kind::scalar && Lower(value.text) == "none") return;
        if (value.kind != Value::Kind::list) {
          spec.training.profile_steps = {ReadInteger(value, 1, INT64_MAX)};
          return;
        }
        for (const Value& step : value.items) spec.training.profile_steps.push_back(ReadInteger(step, 1, INT64_MAX));
      },
      [](const JobSpec& spec) {
        if (spec.training.profile_steps.empty()) return std::string("none");
        std::string steps;
        for (int64_t step : spec.training.profile_steps) steps += (steps.empty() ? "[" : ", ") + std::to_string(step);
        return steps + "]";
      });
}

std::vector<Key> JobKeys() {
  return {Text("job.name", "text", DS_KEY_FIELD(name), ReadJobName, "the file's name",
               "names the run directory OUTPUT/NAME"),
          SeedKey()};
}

std::vector<Key> DataKeys() {
  return {
      Paths("data.train", "file", DS_KEY_FIELD(data.train), "-",
            "text, JSON lines (`.jsonl`), both also as gzip or Zstandard, prepared token files (`.tok`), Megatron-LM's "
            "`.idx`, or folders of them"),
      Paths("data.validation", "file", DS_KEY_FIELD(data.validation), "none", "the same, for validation"),
      Text("data.tokenizer", "bytes, or a path", DS_KEY_FIELD(data.tokenizer), ReadTokenizer, nullptr,
           "`bytes`: 256 values and an end of document; or a SentencePiece model's file (docs/tokenizers.md)"),
      Text("data.tokenizer_id", "bytes, or sp- and 16 digits", DS_KEY_FIELD(data.tokenizer_id), ReadTokenizerId,
           "the tokenizer's", "what the tokenizer is known by; another file is refused"),
      Integer("data.sequence_length", DS_KEY_FIELD(data.sequence_length), 1, 1 << 30, "model.max_positions",
              "tokens a sample"),
      Flag("data.reset_attention", DS_KEY_FIELD(data.reset_attention), nullptr,
           "attention stays within a document: a token sees none of those before its document's first (Megatron-LM's "
           "`--reset-attention-mask`)"),
  };
}

std::vector<Key> TrainingKeys() {
  return {
      Integer("training.steps", DS_KEY_FIELD(training.steps), 1, kMostSteps, "-", "optimizer steps to train"),
      Integer("training.log_every", DS_KEY_FIELD(training.log_every), 1, kMostSteps, nullptr,
              "steps between lines on the screen; metrics.jsonl has every step"),
      Integer("training.validate_every", DS_KEY_FIELD(training.validate_every), 0, kMostSteps, nullptr,
              "steps between validations; 0: never"),
      Integer("training.validate_batches", DS_KEY_FIELD(training.validate_batches), 1, kMostSteps, nullptr,
              "global batches a validation"),
      Choice("training.recompute", DS_KEY_FIELD(training.recompute), kRecomputeNames, nullptr,
             "what the backward computes anew instead of keeping it: nothing, the output of swiglu, that and the "
             "attention halves, whole blocks"),
      Flag("training.deterministic", DS_KEY_FIELD(training.deterministic), nullptr,
           "the same job on the same machine gives the same bits; false lets kernels that do not promise it run"),
      Flag("training.exact_sharding", DS_KEY_FIELD(training.exact_sharding), nullptr,
           "with accumulation too, all ZeRO stages give the same bits, at the price that the plan states"),
      Flag("training.fp8", DS_KEY_FIELD(training.fp8), nullptr,
           "the linear layers of blocks multiply in 8 bits, each tensor scaled by its own largest element; needs bf16 "
           "(see below)"),
      ProfileKey(),
      Choice(
          "training.on_nan", DS_KEY_FIELD(training.on_nan), kOnNanNames, nullptr,
          "when a loss or gradient is not finite: end the job, or skip the step (20 in a row end it); names step, rank "
          "and segment"),
      Choice("training.device", DS_KEY_FIELD(training.device), kDeviceNames, nullptr,
             "what ranks compute on; auto: GPUs where the nodes have them, else CPUs"),
  };
}

std::vector<Key> CheckpointAndMemoryKeys() {
  return {
      Integer("checkpoint.every", DS_KEY_FIELD(checkpoint.every), -1, kMostSteps, nullptr,
              "steps between checkpoints; 0: one at the end only, -1: never"),
      Integer("checkpoint.keep", DS_KEY_FIELD(checkpoint.keep), 1, kMostSteps, nullptr,
              "newest checkpoints that stay; older ones are removed"),
      Flag("checkpoint.on_signal", DS_KEY_FIELD(checkpoint.on_signal), nullptr, "write one when a signal ends the job"),
      Flag("checkpoint.async", DS_KEY_FIELD(checkpoint.async), nullptr,
           "training goes on while one is written, from a copy in host memory that the plan counts; the last one of "
           "a job needs none"),
      Bytes("memory.device_limit", DS_KEY_FIELD(memory.device_limit), "what the node has",
            "device memory a rank; the plan keeps within"),
      Bytes("memory.host_limit", DS_KEY_FIELD(memory.host_limit), "what the node has",
            "host memory a rank; the plan keeps within"),
      Choice("memory.offload_activations", DS_KEY_FIELD(memory.offload_activations), kOffloadNames, nullptr,
             "where activations are kept between the forward and the backward pass (docs/offload.md)"),
      Paths("memory.nvme_path", "folder", DS_KEY_FIELD(memory.nvme_path), "none",
            "folders that hold what is offloaded to nvme, in stripes over all of them; each node has them"),
  };
}

std::vector<Key> AllKeys() {
  std::vector<Key> all;
  for (auto part : {JobKeys, ModelKeys, DataKeys, ParallelKeys, TrainingKeys, CheckpointAndMemoryKeys, LaunchKeys}) {
    for (Key& key : part()) all.push_back(std::move(key));
  }
  return all;
}

}  // namespace

const std::vector<Key>& Keys() {
  static const std::vector<Key> keys = AllKeys();
  return keys;
}

}  // namespace ds
