#include "runtime/job/keys.h"

#include "runtime/base/checksum.h"
#include "runtime/base/error.h"
#include "runtime/base/interface.h"
#include "runtime/job/names.h"
#include "runtime/job/preflight_names.h"
#include "runtime/job/presets.h"
#include "runtime/job/yaml.h"

namespace ds {
namespace {

/// Access to one member of a JobSpec.
#define DS_FIELD(member) \
  [](JobSpec & spec) -> auto& { return spec.member; }

/// Reads through an accessor that wants a mutable spec; nothing is changed.
template <typename Get>
const auto& Look(Get get, const JobSpec& spec) {
  return get(const_cast<JobSpec&>(spec));
}

/// Fills in what every row has. `fallback`: nullptr for the default that the code has.
template <typename Read, typename Write>
Key Row(const char* path, const std::string& type, const char* fallback, const char* meaning, Read read, Write write) {
  return {path, type, fallback != nullptr ? fallback : "`" + write(JobSpec{}) + "`", meaning, read, write};
}

template <typename Get>
Key Integer(const char* path, Get get, int64_t low, int64_t high, const char* fallback, const char* meaning) {
  return Row(
      path, "whole number, " + std::to_string(low) + " or more", fallback, meaning,
      [=](JobSpec& spec, const Value& value) { get(spec) = ReadInteger(value, low, high); },
      [=](const JobSpec& spec) { return std::to_string(Look(get, spec)); });
}

template <typename Get>
Key Flag(const char* path, Get get, const char* fallback, const char* meaning) {
  return Row(
      path, "true, false", fallback, meaning, [=](JobSpec& spec, const Value& value) { get(spec) = AsBool(value); },
      [=](const JobSpec& spec) { return std::string(Look(get, spec) ? "true" : "false"); });
}

template <typename Get, typename Read>
Key Number(const char* path, const char* type, Get get, Read read, const char* fallback, const char* meaning) {
  return Row(
      path, type, fallback, meaning, [=](JobSpec& spec, const Value& value) { get(spec) = read(value); },
      [=](const JobSpec& spec) { return JsonNumber(Look(get, spec)); });
}

template <typename Get, typename E>
Key Choice(const char* path, Get get, const Names<E>& names, const char* fallback, const char* meaning) {
  return Row(
      path, Choices(names), fallback, meaning,
      [get, &names](JobSpec& spec, const Value& value) { get(spec) = ReadName(value, names); },
      [get, &names](const JobSpec& spec) { return NameOf(Look(get, spec), names); });
}

template <typename Get, typename Read>
Key Text(const char* path, const char* type, Get get, Read read, const char* fallback, const char* meaning) {
  return Row(
      path, type, fallback, meaning, [=](JobSpec& spec, const Value& value) { get(spec) = read(value); },
      [=](const JobSpec& spec) { return YamlScalar(Look(get, spec)); });
}

template <typename Get>
Key Paths(const char* path, const char* what, Get get, const char* fallback, const char* meaning) {
  const auto read = [=](JobSpec& spec, const Value& value) {
    auto& paths = get(spec);
    paths.clear();
    const auto add = [&](const Value& item) {
      if (AsString(item).empty()) throw ValueError(item, std::string("an empty path; write a ") + what);
      if (item.text.find('\0') != std::string::npos) throw ValueError(item, std::string("no path; write a ") + what);
      paths.push_back(item.text);
    };
    if (value.kind == Value::Kind::list) {
      for (const Value& item : value.items) add(item);
    } else {
      add(value);
    }
  };
  const auto write = [=](const JobSpec& spec) {
    std::vector<std::string> paths;
    for (const std::string& one : Look(get, spec)) paths.push_back(YamlScalar(one));
    return "[" + Join(paths, ", ") + "]";
  };
  return Row(path, "a path or a list of paths", fallback, meaning, read, write);
}

template <typename Get>
Key Bytes(const char* path, Get get, const char* fallback, const char* meaning) {
  const auto read = [=](JobSpec& spec, const Value& value) {
    const int64_t bytes = AsBytes(value);
    if (bytes == 0) throw ValueError(value, "no memory at all; write bytes such as 64MiB, or leave the key out");
    get(spec) = bytes;
  };
  const auto write = [=](const JobSpec& spec) {
    const auto& bytes = Look(get, spec);
    return bytes ? std::to_string(*bytes) : std::string("null");
  };
  return Row(path, "bytes, or with a unit: `64MiB`", fallback, meaning, read, write);
}

/// A parallel degree that this version runs at 1 only.
template <typename Get>
Key Degree(const char* path, Get get, const char* meaning) {
  Key key = Integer(path, get, 1, 1 << 20, nullptr, meaning);
  key.type = "1";
  key.read = [=](JobSpec& spec, const Value& value) {
    get(spec) = ReadInteger(value, 1, 1 << 20);
    if (get(spec) != 1) {
      throw ValueError(
          value, "this version shards over data-parallel ranks only; write 1, and a higher ZeRO stage to save memory");
    }
  };
  return key;
}

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

std::string ReadPreset(const Value& value) {
  const std::string& name = AsString(value);
  if (FindPreset(name) != nullptr) return name;
  std::vector<std::string> names;
  for (const Preset& preset : Presets()) names.push_back(preset.name);
  throw ValueError(value, "unknown preset; the nearest of " + Join(names, ", ") + " is " + Nearest(name, names));
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

std::string ReadPartition(const Value& value) {
  if (AsString(value) != "time") {
    throw ValueError(value, "this version cuts no pipelines, so there is nothing to partition; write time");
  }
  return value.text;
}

std::string ReadBootstrap(const Value& value) {
  static const std::vector<std::string> names = {"auto", "local", "ssh", "slurm", "mpi", "daemon"};
  for (const std::string& name : names) {
    if (Lower(AsString(value)) == name) return name;
  }
  throw ValueError(value, "not one of the choices; write one of " + Join(names, ", "));
}

std::string ReadInterface(const Value& value) {
  const std::string& text = AsString(value);
  if (const std::string trouble = InterfaceTextTrouble(text); !trouble.empty()) {
    throw ValueError(value,
                     trouble + "; write auto, a name such as eth0, an address, or a network such as 10.0.0.0/24");
  }
  return text;
}

std::string ReadAgentProgram(const Value& value) {
  const std::string& path = AsString(value);
  if (path.find('\0') != std::string::npos || path.empty() || path[0] == '-' ||
      (path[0] != '/' && path.find('/') != std::string::npos)) {
    throw ValueError(value,
                     "neither an absolute path nor a name; write /PATH/ds-agent, or a name that is in the nodes' PATH");
  }
  return path;
}

std::string ReadAbsolutePath(const Value& value) {
  const std::string& path = AsString(value);
  if (path != "auto" && (path.empty() || path[0] != '/')) throw ValueError(value, "write auto or an absolute path");
  return path;
}

Key PositionKey() {
  Key key = Choice("model.position", DS_FIELD(model.position), kPositionNames, nullptr,
                   "how a token's place enters: a learned table, or rotary embedding (element i turns with element i + "
                   "size / 2, as LLaMA in Transformers)");
  const auto read = key.read;
  key.read = [read](JobSpec& spec, const Value& value) {
    if (value.kind == Value::Kind::scalar && Plain(value.text) == "alibi") {
      throw ValueError(value, "this version has no ALiBi; write learned or rope");
    }
    read(spec, value);
  };
  return key;
}

Key ScheduleKey() {
  return Row(
      "parallel.schedule", "1f1b", nullptr,
      "the pipeline's order of work; of use with `parallel.pipeline` above 1 only",
      [](JobSpec& spec, const Value& value) {
        spec.parallel.schedule = ReadName(value, kScheduleNames);
        if (spec.parallel.schedule != ScheduleKind::one_f_one_b) {
          throw ValueError(value, "this version runs no pipelines, so there is nothing to schedule; write 1f1b");
        }
      },
      [](const JobSpec& spec) { return NameOf(spec.parallel.schedule, kScheduleNames); });
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

constexpr int64_t kMostRestarts = int64_t{1} << 53;

RestartBudgets ReadRestarts(const Value& value) {
  RestartBudgets budgets;
  if (value.kind == Value::Kind::scalar) {
    budgets.any = ReadInteger(value, 0, kMostRestarts);
    return budgets;
  }
  if (value.kind != Value::Kind::map)
    throw ValueError(value, "write a number, or {worker: N, node: N, no_progress: N}, not " + Describe(value));
  budgets.by_cause = true;
  for (const auto& [name, field] : value.fields) {
    if (name.starts_with("_")) continue;
    if (name == "worker")
      budgets.worker = ReadInteger(field, 0, kMostRestarts);
    else if (name == "no_progress")
      budgets.no_progress = ReadInteger(field, 0, kMostRestarts);
    else if (name == "node")
      budgets.node = ReadInteger(field, 0, kMostRestarts);
    else
      throw ValueError(field, "`" + Shown(name) + "` is no cause of a restart; write worker, node or no_progress");
  }
  return budgets;
}

Key RestartsKey() {
  return Row(
      "launch.restarts", "whole number, 0 or more, or {worker: N, node: N, no_progress: N}", nullptr,
      "times that a failed job starts again from its newest checkpoint: for any cause, or a budget a cause (node: with "
      "launch.min_nodes, else as often as that allows)",
      [](JobSpec& spec, const Value& value) { spec.launch.restarts = ReadRestarts(value); },
      [](const JobSpec& spec) {
        const RestartBudgets& budgets = spec.launch.restarts;
        if (!budgets.by_cause) return std::to_string(budgets.any);
        return "{worker: " + std::to_string(budgets.worker) +
               (budgets.node ? ", node: " + std::to_string(*budgets.node) : "") +
               ", no_progress: " + std::to_string(budgets.no_progress) + "}";
      });
}

Key MinNodesKey() {
  return Row(
      "launch.min_nodes", "all, or whole number, 1 or more", nullptr,
      "nodes that a job needs: after a lost node it goes on with those left, at the same global batch "
      "(docs/operations.md)",
      [](JobSpec& spec, const Value& value) {
        spec.launch.min_nodes.reset();
        if (value.kind == Value::Kind::scalar && Lower(value.text) == "all") return;
        spec.launch.min_nodes = ReadInteger(value, 1, 1 << 20);
      },
      [](const JobSpec& spec) {
        return spec.launch.min_nodes ? std::to_string(*spec.launch.min_nodes) : std::string("all");
      });
}

Key LogRotateKey() {
  return Row(
      "launch.log_rotate", "bytes, or with a unit: `64MiB`; none", "1GiB",
      "a rank's log that would grow beyond this is renamed to rank-N.log.1, the one before it to .2, and so on",
      [](JobSpec& spec, const Value& value) {
        spec.launch.log_rotate = 0;
        if (value.kind == Value::Kind::scalar && Lower(value.text) == "none") return;
        spec.launch.log_rotate = AsBytes(value);
        if (spec.launch.log_rotate < 4096) throw ValueError(value, "too small for a log; write 4KiB or more, or none");
      },
      [](const JobSpec& spec) {
        return spec.launch.log_rotate == 0 ? std::string("none") : std::to_string(spec.launch.log_rotate);
      });
}

Key EnvKey() {
  return Row(
      "launch.env", "names and values", nullptr,
      "environment of the workers, handed over byte for byte (here a name may begin with `_`)",
      [](JobSpec& spec, const Value& value) {
        if (value.kind != Value::Kind::map) throw ValueError(value, "write NAME: VALUE lines, not " + Describe(value));
        spec.launch.env.clear();
        for (const auto& [name, field] : value.fields) {
          const std::string& text = AsString(field);
          if (name.empty() || name.find('=') != std::string::npos || name.find('\0') != std::string::npos) {
            throw ValueError(field, "its name is empty or has '='; write NAME: VALUE");
          }
          if (text.find('\0') != std::string::npos) throw ValueError(field, "a zero byte in a variable; remove it");
          spec.launch.env.emplace_back(name, text);
        }
      },
      [](const JobSpec& spec) {
        std::vector<std::string> fields;
        for (const auto& [name, value] : spec.launch.env) fields.push_back(YamlScalar(name) + ": " + JsonString(value));
        return "{" + Join(fields, ", ") + "}";
      });
}

Key SkipChecksKey() {
  return Row(
      "launch.skip_checks", "a name or a list of names", nullptr,
      "checks of the preflight that are not made (docs/operations.md lists them); `--skip-check` adds to them",
      [](JobSpec& spec, const Value& value) {
        spec.launch.skip_checks.clear();
        const auto add = [&](const Value& item) {
          try {
            AddCheckNames(AsString(item), spec.launch.skip_checks);
          } catch (const UsageError& error) {
            throw ValueError(item, error.what());
          }
        };
        if (value.kind != Value::Kind::list) return add(value);
        for (const Value& item : value.items) add(item);
      },
      [](const JobSpec& spec) { return "[" + Join(spec.launch.skip_checks, ", ") + "]"; });
}

std::string ReadContain(const Value& value) {
  const std::string name = Lower(AsString(value));
  if (!IsContainMode(name)) throw ValueError(value, "expected auto, cgroup, namespace or process");
  return name;
}

constexpr int64_t kMany =
    int64_t{1} << 53;  // every such count is exact in metrics, which other programs read as doubles

std::vector<Key> JobKeys() {
  return {
      Text("job.name", "text", DS_FIELD(name), ReadJobName, "the file's name", "names the run directory OUTPUT/NAME"),
      SeedKey()};
}

std::vector<Key> ModelKeys() {
  return {
      Row(
          "model.preset", "a name of the table below", "none", "a published shape; any key below overrides it",
          [](JobSpec& spec, const Value& value) { spec.preset = ReadPreset(value); },
          [](const JobSpec& spec) { return spec.preset.empty() ? std::string("null") : YamlScalar(spec.preset); }),
      Integer("model.layers", DS_FIELD(model.layers), 1, 100'000, "-", "transformer blocks"),
      Integer("model.hidden", DS_FIELD(model.hidden), 1, 1 << 20, "-",
              "width of the residual stream; a multiple of heads"),
      Integer("model.heads", DS_FIELD(model.heads), 1, 1 << 16, "-", "attention heads; a multiple of kv_heads"),
      Integer("model.kv_heads", DS_FIELD(model.kv_heads), 1, 1 << 16, "heads",
              "key and value heads (grouped-query attention)"),
      Integer("model.ffn", DS_FIELD(model.ffn), 1, 1 << 24,
              "4 hidden; swiglu: 8/3 hidden, rounded up to a multiple of 64", "width inside the MLP"),
      Integer("model.vocabulary", DS_FIELD(model.vocabulary), 1, 1 << 28, "the tokenizer's: 257 for bytes",
              "tokens; padded inside to a multiple of 64, loss and export see the real one"),
      Integer("model.max_positions", DS_FIELD(model.max_positions), 1, 1 << 30, "data.sequence_length",
              "longest sequence; rows of the table of learned positions"),
      Choice("model.norm", DS_FIELD(model.norm), kNormNames, nullptr,
             "normalisation before each half of a block and the head"),
      Number("model.norm_eps", "number above 0", DS_FIELD(model.norm_eps), ReadPositive, nullptr,
             "added to the variance"),
      PositionKey(),
      Number("model.rope_theta", "number above 0", DS_FIELD(model.rope_theta), ReadPositive, nullptr,
             "base of the rotary frequencies; of use with rope only"),
      Choice("model.activation", DS_FIELD(model.activation), kActivationNames, nullptr,
             "of the MLP: exact GELU, its tanh form (GPT-2's), gated SiLU"),
      Flag("model.bias", DS_FIELD(model.bias), nullptr, "biases of linear layers and of layer_norm"),
      Flag("model.qkv_bias", DS_FIELD(model.qkv_bias), "model.bias; the preset's own for qwen2.5",
           "bias of the query, key and value projections"),
      Flag("model.tied_head", DS_FIELD(model.tied_head), nullptr, "the output projection is the token embedding"),
      Number("model.dropout", "number in [0, 1)", DS_FIELD(model.dropout), ReadFraction, nullptr,
             "after the embedding, on attention probabilities and on both residual branches"),
  };
}

std::vector<Key> DataKeys() {
  return {
      Paths("data.train", "file", DS_FIELD(data.train), "-",
            "text, JSON lines (`.jsonl`), both also as gzip or Zstandard, prepared token files (`.tok`), Megatron-LM's "
            "`.idx`, or folders of them"),
      Paths("data.validation", "file", DS_FIELD(data.validation), "none", "the same, for validation"),
      Text("data.tokenizer", "bytes, or a path", DS_FIELD(data.tokenizer), ReadTokenizer, nullptr,
           "`bytes`: 256 values and an end of document; or a SentencePiece model's file (docs/tokenizers.md)"),
      Text("data.tokenizer_id", "bytes, or sp- and 16 digits", DS_FIELD(data.tokenizer_id), ReadTokenizerId,
           "the tokenizer's", "what the tokenizer is known by; another file is refused"),
      Integer("data.sequence_length", DS_FIELD(data.sequence_length), 1, 1 << 30, "model.max_positions",
              "tokens a sample"),
      Flag("data.reset_attention", DS_FIELD(data.reset_attention), nullptr,
           "attention stays within a document: a token sees none of those before its document's first (Megatron-LM's "
           "`--reset-attention-mask`)"),
  };
}

std::vector<Key> ParallelKeys() {
  return {
      Degree("parallel.tensor", DS_FIELD(parallel.tensor), "ranks that share each matrix product"),
      Degree("parallel.pipeline", DS_FIELD(parallel.pipeline), "stages that the layers are cut into"),
      Degree("parallel.sequence", DS_FIELD(parallel.sequence), "ranks that share each sequence"),
      Degree("parallel.expert", DS_FIELD(parallel.expert), "ranks that share the experts"),
      ScheduleKey(),
      Degree("parallel.virtual_stages", DS_FIELD(parallel.virtual_stages),
             "stages a rank holds under interleaved schedules"),
      Text("parallel.partition", "time", DS_FIELD(parallel.partition), ReadPartition, nullptr,
           "what balances the stages"),
  };
}

std::vector<Key> TrainingKeys() {
  return {
      Integer("training.steps", DS_FIELD(training.steps), 1, kMany, "-", "optimizer steps to train"),
      Integer("training.log_every", DS_FIELD(training.log_every), 1, kMany, nullptr,
              "steps between lines on the screen; metrics.jsonl has every step"),
      Integer("training.validate_every", DS_FIELD(training.validate_every), 0, kMany, nullptr,
              "steps between validations; 0: never"),
      Integer("training.validate_batches", DS_FIELD(training.validate_batches), 1, kMany, nullptr,
              "global batches a validation"),
      Choice("training.recompute", DS_FIELD(training.recompute), kRecomputeNames, nullptr,
             "what the backward computes anew instead of keeping it: nothing, the output of swiglu, that and the "
             "attention halves, whole blocks"),
      Flag("training.deterministic", DS_FIELD(training.deterministic), nullptr,
           "the same job on the same machine gives the same bits; false lets kernels that do not promise it run"),
      Flag("training.exact_sharding", DS_FIELD(training.exact_sharding), nullptr,
           "with accumulation too, all ZeRO stages give the same bits, at the price that the plan states"),
      Flag("training.fp8", DS_FIELD(training.fp8), nullptr,
           "the linear layers of blocks multiply in 8 bits, each tensor scaled by its own largest element; needs bf16 "
           "(see below)"),
      ProfileKey(),
      Choice(
          "training.on_nan", DS_FIELD(training.on_nan), kOnNanNames, nullptr,
          "when a loss or gradient is not finite: end the job, or skip the step (20 in a row end it); names step, rank "
          "and segment"),
      Choice("training.device", DS_FIELD(training.device), kDeviceNames, nullptr,
             "what ranks compute on; auto: GPUs where the nodes have them, else CPUs"),
  };
}

std::vector<Key> OtherKeys() {
  return {
      Integer("checkpoint.every", DS_FIELD(checkpoint.every), -1, kMany, nullptr,
              "steps between checkpoints; 0: one at the end only, -1: never"),
      Integer("checkpoint.keep", DS_FIELD(checkpoint.keep), 1, kMany, nullptr,
              "newest checkpoints that stay; older ones are removed"),
      Flag("checkpoint.on_signal", DS_FIELD(checkpoint.on_signal), nullptr, "write one when a signal ends the job"),
      Flag("checkpoint.async", DS_FIELD(checkpoint.async), nullptr,
           "training goes on while one is written, from a copy in host memory that the plan counts; the last one of a "
           "job "
           "needs none"),
      Bytes("memory.device_limit", DS_FIELD(memory.device_limit), "what the node has",
            "device memory a rank; the plan keeps within"),
      Bytes("memory.host_limit", DS_FIELD(memory.host_limit), "what the node has",
            "host memory a rank; the plan keeps within"),
      Choice("memory.offload_activations", DS_FIELD(memory.offload_activations), kOffloadNames, nullptr,
             "where activations are kept between the forward and the backward pass (docs/offload.md)"),
      Paths("memory.nvme_path", "folder", DS_FIELD(memory.nvme_path), "none",
            "folders that hold what is offloaded to nvme, in stripes over all of them; each node has them"),
      Text("launch.bootstrap", "auto, local, ssh, slurm, mpi, daemon", DS_FIELD(launch.bootstrap), ReadBootstrap,
           nullptr, "how agents are reached; `--bootstrap` wins"),
      RestartsKey(),
      MinNodesKey(),
      EnvKey(),
      Number(
          "launch.grace_seconds", "number, 0.1 or more", DS_FIELD(launch.grace_seconds),
          [](const Value& value) { return ReadWait(value, 0.1, "processes need a moment to end in"); }, nullptr,
          "time to end in after a signal, before SIGKILL (after a failure our own workers get 5 s)"),
      Number(
          "launch.lease_seconds", "number, 2 or more", DS_FIELD(launch.lease_seconds),
          [](const Value& value) {
            return ReadWait(value, 2, "agents and ds-launch speak once a second, so that every node would be lost");
          },
          nullptr, "a node that is silent for so long is lost, and so is a launcher to its agents"),
      Number(
          "launch.suspect_seconds", "number, 1 or more", DS_FIELD(launch.suspect_seconds),
          [](const Value& value) { return ReadWait(value, 1, "agents speak once a second"); }, nullptr,
          "an agent that is silent though its machine answers is suspected after 3 s, and lost so much later; at most "
          "lease_seconds, which it is where that is less than 20 and this is not written"),
      Number(
          "launch.progress_seconds", "number, 0 or more", DS_FIELD(launch.progress_seconds),
          [](const Value& value) { return ReadNumber(value, 0, 1e9); }, nullptr,
          "no step for so long ends the job; 0: never"),
      Number(
          "launch.join_seconds", "number, 1 or more", DS_FIELD(launch.join_seconds),
          [](const Value& value) {
            return ReadWait(value, 1, "agents need a moment to start, so that none would join");
          },
          nullptr, "time for all agents to be brought up and to join; more for many hosts or slow logins"),
      Choice(
          "launch.bind", DS_FIELD(launch.bind), kBindNames, nullptr,
          "workers get cores and memory near their GPU, or a share of their node; auto: on nodes with several workers "
          "and two cores or more for each; `--bind` wins"),
      Number(
          "launch.log_lines_per_second", "number, 0 or more", DS_FIELD(launch.log_lines_per_second),
          [](const Value& value) { return ReadNumber(value, 0, 1e9); }, nullptr,
          "lines that a rank may log, 20 seconds' worth at once; what is more is dropped, and said; 0: no limit"),
      LogRotateKey(),
      Integer("launch.log_keep", DS_FIELD(launch.log_keep), 0, 1000, nullptr,
              "older files of each rank's log that stay"),
      Text("launch.interface", "auto, a name, an address or a network", DS_FIELD(launch.interface), ReadInterface,
           nullptr,
           "network that control and data connections use, on each node the interface with this name or an address in "
           "this network; auto: the one that reaches the launcher; `--interface` wins"),
      Text(
          "launch.agent", "auto, an absolute path, or a name", DS_FIELD(launch.agent), ReadAgentProgram, nullptr,
          "ds-agent on the nodes; auto: the path beside ds-launch's own; a name is looked for in PATH; `--agent` wins"),
      Text("launch.ssh_config", "auto, or an absolute path", DS_FIELD(launch.ssh_config), ReadAbsolutePath, nullptr,
           "a configuration file for ssh (`ssh -F`); auto: ssh's own; `--ssh-config` wins"),
      Integer("launch.ssh_port", DS_FIELD(launch.ssh_port), 0, 65535, nullptr,
              "the port of sshd; 0: as ssh is configured; `--ssh-port` wins"),
      Text("launch.daemon_site", "auto, or an absolute path", DS_FIELD(launch.daemon_site), ReadAbsolutePath, nullptr,
           "the file of the site identity that daemons know (bootstrap daemon); auto: ~/.config/deepshard/site.yaml; "
           "`--daemon-site` wins"),
      Integer("launch.daemon_port", DS_FIELD(launch.daemon_port), 0, 65535, nullptr,
              "the port that daemons listen on; 0: as the site file says; `--daemon-port` wins"),
      Text(
          "launch.contain", "auto, cgroup, namespace, process", DS_FIELD(launch.contain), ReadContain, nullptr,
          "what keeps a job's processes from outliving it (docs/operations.md); auto: the strongest that a node allows "
          "and programs do not notice"),
      SkipChecksKey(),
  };
}

#undef DS_FIELD

std::vector<Key> AllKeys() {
  std::vector<Key> all;
  for (auto part : {JobKeys, ModelKeys, DataKeys, ParallelKeys, TrainingKeys, OtherKeys}) {
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
