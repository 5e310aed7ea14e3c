// The `deepspeed` section: a DeepSpeed 0.19 configuration, each key in one of three classes.
//
//   honoured                  it does here what it does there
//   satisfied by construction it is always so here: accepted and noted; a value that asks for the opposite is refused
//   refused                   this version cannot do it: an error that says why; the harmless default is accepted
//
// A refused key that turns a section on takes the section's other keys with it: they are read, checked and noted as
// being of no effect while it is off. "auto" is resolved and noted; so is an older spelling. Keys are checked against
// this table, so a misspelt one is an error, unlike in DeepSpeed.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/value.h"
#include "runtime/job/job_spec.h"
#include "runtime/job/problems.h"

namespace ds {

/// What is written about where one kind of state is kept; offload.h puts it together.
struct OffloadDraft {
  std::optional<OffloadTarget> device;
  std::optional<Value> legacy;  ///< `cpu_offload`, `cpu_offload_param`: true stands for cpu
  std::optional<std::string> nvme_path;
};

/// The section as it was read: what goes straight into the spec is there, the rest waits for the job's other sections.
struct DeepSpeedDraft {
  explicit DeepSpeedDraft(JobSpec& out) : spec(out) {}
  JobSpec& spec;
  std::optional<int64_t> train_batch_size, micro_batch_size, accumulation;
  std::optional<int64_t> steps_per_print;
  std::optional<int64_t> sequence_parallel_size, autotp_size, tp_size, pipeline_stages, vocabulary_size;
  bool fp16 = false, bf16 = false;
  std::vector<std::string> auto_batch;    ///< batch sizes that are "auto": paths with `deepspeed.`
  bool zero_switch = false;               ///< `zero_optimization: true`, the oldest spelling of stage 1
  std::optional<int64_t> allgather_size;  ///< of use with zero_switch only
  OffloadDraft offload_optimizer, offload_param;
  std::optional<double> offload_ratio;
  bool offload_ratio_auto = false;
  std::optional<int64_t> file_block_bytes, file_queue_depth;
  bool cpu_checkpointing = false;
  /// Keys whose "auto" follows from the model's width and from the ZeRO stage, as Hugging Face's trainer has it.
  std::vector<std::string> autos_of_width;
};

enum class DeepSpeedClass { honoured, by_construction, refused };

enum class DeepSpeedType { boolean, integer, number, text, list, texts, map, any };

/// "whole number", "true or false", ... as documentation and messages tell it.
std::string TypeName(DeepSpeedType type);

struct DeepSpeedKey {
  /// Below `deepspeed`. A part `*` stands for any name, `name[]` for the items of a list.
  std::string path;
  DeepSpeedType type;
  DeepSpeedClass kind;
  std::string fallback;  ///< DeepSpeed's default, as JSON without quotes; "-": none, it must be written
  /// Values accepted, separated by '|', where the key is not honoured; "any": all. Null and the default always are.
  std::string accepts;
  /// honoured: the meaning; by construction: why it is always so; refused: why it cannot be had.
  std::string text;
  std::function<void(DeepSpeedDraft&, const Value&)> read;  ///< of an honoured key
  /// Not empty: the key is of use only with something that is refused, and this says what is off.
  std::string idle;
  bool reads_auto = false;  ///< `read` takes the word "auto" too, for which there is a meaning
};

/// All keys but `optimizer` and `scheduler` parameters, in the order of the documentation.
const std::vector<DeepSpeedKey>& DeepSpeedKeys();

/// The key of that path, or nullptr.
const DeepSpeedKey* FindDeepSpeedKey(const std::string& path);

/// Older and shorter spellings that DeepSpeed accepts: spelling, and path in the table.
const std::vector<std::pair<std::string, std::string>>& DeepSpeedRenames();

/// Reads the section at `root.deepspeed` into `spec`; problems are added, not thrown. `ranks`, those that read
/// different samples, resolve the batch sizes, `folder` relative paths.
void ReadDeepSpeed(const Value& root, const std::string& folder, int64_t ranks, JobSpec& spec, Problems& problems);

/// The section as YAML lines, two blanks of indentation, every honoured key written out.
std::string DeepSpeedYaml(const JobSpec& spec);

}  // namespace ds
