// The job spec, resolved: every default filled in, every value checked, DeepSpeed's section translated.
// docs/job-spec.md documents each key; runtime/job/schema.* reads and checks them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace ds {

enum class Norm { layer_norm, rms_norm };
enum class PositionKind { learned, rope };
enum class Activation { gelu, gelu_tanh, swiglu };
enum class Precision { fp32, bf16, fp16 };
/// What the backward computes again instead of keeping it, each with what those before it do: nothing; the output of
/// SwiGLU; attention halves; all of a block.
enum class RecomputeMode { none, activation, attention, full };
enum class OnNan { stop, skip };
/// What ranks compute on. automatic: the GPUs where every node has them, else CPUs.
enum class DeviceChoice { automatic, cpu, gpu };
/// Whether workers get cores and memory of their own. automatic: where it cannot cost anything.
enum class BindChoice { automatic, cores, none };
enum class ScheduleKind { gpipe, one_f_one_b, interleaved, zb_h1, zb_v };

/// What a model is: one description for GPT-2, LLaMA, Mistral, Qwen2, ...
struct ModelConfig {
  int64_t layers = 0, hidden = 0, heads = 0, kv_heads = 0, ffn = 0;
  int64_t vocabulary = 0;  ///< as users, loss and exported files see it
  int64_t max_positions = 0;
  Norm norm = Norm::layer_norm;
  double norm_eps = 1e-5;
  PositionKind position = PositionKind::learned;
  double rope_theta = 10000.0;
  Activation activation = Activation::gelu_tanh;
  bool bias = true;       ///< biases of linear layers (and of LayerNorm)
  bool qkv_bias = true;   ///< bias of the query/key/value projection (defaults to `bias`; Qwen2 has it alone)
  bool tied_head = true;  ///< the output projection is the token embedding
  double dropout = 0.0;   ///< embedding, attention probabilities, residual branches

  int64_t head_size() const { return hidden / heads; }
  /// vocabulary rounded up to a multiple of 64: rows of the embedding that no token names, columns of logits that the
  /// loss does not see.
  int64_t padded_vocabulary() const { return (vocabulary + 63) / 64 * 64; }
  bool operator==(const ModelConfig&) const = default;
};

struct DataConfig {
  std::vector<std::string> train, validation;  ///< absolute paths: text, .jsonl or prepared token files
  std::string tokenizer = "bytes";             ///< or the absolute path of a SentencePiece model
  std::string tokenizer_id = "bytes";          ///< what that tokenizer is known by (tokenizer_file.h)
  int64_t sequence_length = 0;
  bool reset_attention = false;  ///< attention stays within a document
  bool operator==(const DataConfig&) const = default;
};

struct ParallelConfig {
  int64_t tensor = 1, pipeline = 1, sequence = 1, expert = 1;
  ScheduleKind schedule = ScheduleKind::one_f_one_b;
  int64_t virtual_stages = 1;
  std::string partition = "time";
  bool operator==(const ParallelConfig&) const = default;
};

/// From DeepSpeed's batch keys.
struct BatchConfig {
  int64_t train_batch_size = 0, micro_batch_size = 0, accumulation = 1;  ///< train = micro * accumulation * data width
  bool operator==(const BatchConfig&) const = default;
};

/// Where state is kept between its uses, by DeepSpeed's names. automatic: the planner chooses (plan/place.h).
enum class OffloadTarget : uint8_t { none, cpu, nvme, automatic };

/// DeepSpeed's zero_optimization. Sizes are in elements.
struct ZeroConfig {
  int stage = 0;
  int64_t reduce_bucket_size = 500'000'000;
  int64_t allgather_bucket_size = 500'000'000;
  int64_t prefetch_bucket_size = 50'000'000;
  int64_t param_persistence_threshold = 100'000;
  int64_t model_persistence_threshold = INT64_MAX;
  int64_t max_live_parameters = 1'000'000'000;
  int64_t max_reuse_distance = 1'000'000'000;
  OffloadTarget offload_optimizer = OffloadTarget::none, offload_param = OffloadTarget::none;
  double offload_ratio = 1;         ///< of the parameters whose optimizer state is offloaded
  bool offload_ratio_auto = false;  ///< the planner chooses it
  bool operator==(const ZeroConfig&) const = default;
};

/// DeepSpeed's fp16 section.
struct LossScaleConfig {
  double fixed = 0;  ///< loss_scale; 0: dynamic
  int initial_power = 16;
  int window = 1000;
  int hysteresis = 2;
  bool consecutive_hysteresis = false;
  double min_scale = 1;
  bool operator==(const LossScaleConfig&) const = default;
};

enum class OptimizerKind { adam, adamw, sgd, lion, adagrad, rmsprop };
struct OptimizerConfig {
  OptimizerKind kind = OptimizerKind::adamw;
  double lr = 1e-3;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;  ///< defaults differ by kind: see docs
  bool bias_correction = true;
  double momentum = 0, dampening = 0, alpha = 0.99;
  bool nesterov = false;
  bool operator==(const OptimizerConfig&) const = default;
};

enum class SchedulerKind { none, lr_range_test, one_cycle, warmup_lr, warmup_decay_lr, warmup_cosine_lr };
/// DeepSpeed's scheduler section: `parameters` by DeepSpeed's names, checked for the kind, defaults filled in.
struct SchedulerConfig {
  SchedulerKind kind = SchedulerKind::none;
  std::map<std::string, double> parameters;  ///< booleans are 0 or 1; warmup_type log = 0, linear = 1
  bool operator==(const SchedulerConfig&) const = default;
};

struct TrainingConfig {
  int64_t steps = 0, log_every = 10, validate_every = 0, validate_batches = 8;
  RecomputeMode recompute = RecomputeMode::none;
  bool deterministic = true, exact_sharding = false;
  bool fp8 = false;  ///< blocks' linear layers multiply in 8 bits (kernels/fp8_linear.h)
  std::vector<int64_t> profile_steps;
  OnNan on_nan = OnNan::stop;
  DeviceChoice device = DeviceChoice::automatic;
  bool operator==(const TrainingConfig&) const = default;
};

struct CheckpointConfig {
  int64_t every = 0, keep = 2;  ///< every: 0 at the end only, -1 never
  bool on_signal = true;
  bool async = true;  ///< written while training goes on
  bool operator==(const CheckpointConfig&) const = default;
};

struct MemoryConfig {
  std::optional<int64_t> device_limit, host_limit;  ///< bytes
  OffloadTarget offload_activations = OffloadTarget::none;
  std::vector<std::string> nvme_path;  ///< folders that hold what is offloaded to NVMe, in stripes
  int64_t file_block_bytes = 1 << 20, file_queue_depth = 8;  ///< DeepSpeed's aio.block_size and aio.queue_depth
  bool operator==(const MemoryConfig&) const = default;
};

/// launch.restarts: how often a job may start again. A number serves failures of workers and hangs alike; a lost node
/// that launch.min_nodes lets the job do without needs none. By cause each has its own.
struct RestartBudgets {
  bool by_cause = false;
  int64_t any = 0;                      ///< of the number
  int64_t worker = 0, no_progress = 0;  ///< by cause
  std::optional<int64_t> node;          ///< by cause; absent: as often as launch.min_nodes allows
  bool operator==(const RestartBudgets&) const = default;
};

struct LaunchConfig {
  std::string bootstrap = "auto";
  RestartBudgets restarts;
  std::optional<int64_t> min_nodes;  ///< absent: all
  std::vector<std::pair<std::string, std::string>> env;
  double grace_seconds = 30, lease_seconds = 30, suspect_seconds = 20, progress_seconds = 600, join_seconds = 60;
  std::string interface = "auto";   ///< a name, an address or a CIDR network
  std::string agent = "auto";       ///< ds-agent on the nodes: an absolute path, or a name for their PATH
  std::string ssh_config = "auto";  ///< an absolute path
  int64_t ssh_port = 0;             ///< 0: as ssh is configured
  BindChoice bind = BindChoice::automatic;
  double log_lines_per_second = 10000;                  ///< of a rank; 0: no limit
  int64_t log_rotate = int64_t{1} << 30, log_keep = 4;  ///< bytes of a rank's log file, 0: no limit; older files
  std::string daemon_site = "auto";                     ///< auto: ~/.config/deepshard/site.yaml
  int64_t daemon_port = 0;                              ///< 0: as the site file says
  std::string contain = "auto";                         ///< auto, cgroup, namespace or process
  std::vector<std::string> skip_checks;                 ///< of the preflight, in its order
  bool operator==(const LaunchConfig&) const = default;
};

struct JobSpec {
  std::string name;
  uint64_t seed = 1234;
  std::string preset;  ///< empty: none
  ModelConfig model;
  DataConfig data;
  ParallelConfig parallel;
  TrainingConfig training;
  CheckpointConfig checkpoint;
  MemoryConfig memory;
  LaunchConfig launch;

  Precision precision = Precision::fp32;  ///< DeepSpeed's bf16.enabled, fp16.enabled
  BatchConfig batch;
  ZeroConfig zero;
  LossScaleConfig loss_scale;
  OptimizerConfig optimizer;
  SchedulerConfig scheduler;
  double gradient_clipping = 1.0;  ///< 0: none

  /// What the reader wants to tell, one sentence each: DeepSpeed keys satisfied by construction, what "auto" became.
  std::vector<std::string> notes;

  /// Whether both describe the same job; notes, which tell how it was written, do not count.
  bool operator==(const JobSpec& other) const;
};

/// One `--set KEY=VALUE`.
struct Override {
  std::string key;    ///< dotted
  std::string value;  ///< YAML
};

/// Reads a job file, applies overrides in order (later wins), checks everything, fills every default in.
/// `ranks` is the number of workers: batch sizes are resolved against its data-parallel part (all of it without
/// a pipeline). Paths in the spec become absolute, relative to the job file. A tokenizer's file is read and checked.
/// Throws UsageError naming file:line:column, key, value, reason and remedy; several errors are reported together, one
/// a line.
JobSpec LoadJobSpec(const std::string& path, const std::vector<Override>& overrides, int64_t ranks);

/// The same from text already in memory (`name` stands for the file in messages; paths are relative to `folder`). The
/// tokenizer's file is read only for what the text leaves open: a resolved spec reads without it.
JobSpec ParseJobSpec(const std::string& text, const std::string& name, const std::string& folder,
                     const std::vector<Override>& overrides, int64_t ranks);

/// launch.bootstrap of a job file with its overrides: what decides about the hosts has to be known before the rest can
/// be read, which needs the number of ranks. "auto" where it is absent or wrong in any way: LoadJobSpec tells.
std::string PeekBootstrap(const std::string& path, const std::vector<Override>& overrides);

/// The resolved spec as YAML, every default written out; ParseJobSpec reads it back to an equal spec.
std::string ToYaml(const JobSpec& spec);

}  // namespace ds
