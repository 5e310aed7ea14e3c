// The `deepspeed` section: a DeepSpeed 0.19 configuration, each key in one of three classes.
//
//   honoured                  it does here what it does there
//   satisfied by construction it is always so here: accepted and noted; a value that asks for the opposite is refused
//   refused                   this version cannot do it: an error that says why; the harmless default is accepted
//
// "auto" is resolved and noted. Keys are checked against this table, so a misspelt one is an error, unlike in
// DeepSpeed.
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

/// The section as it was read: what goes straight into the spec is there, the rest waits for the job's other sections.
struct DeepSpeedDraft {
  explicit DeepSpeedDraft(JobSpec& out) : spec(out) {}
  JobSpec& spec;
  std::optional<int64_t> train_batch_size, micro_batch_size, accumulation;
  std::optional<int64_t> steps_per_print;
  std::optional<int64_t> sequence_parallel_size, autotp_size;
  bool fp16 = false, bf16 = false;
};

enum class DeepSpeedClass { honoured, by_construction, refused };

struct DeepSpeedKey {
  std::string path;  ///< below `deepspeed`
  DeepSpeedClass kind;
  std::string fallback;  ///< DeepSpeed's default, as JSON
  /// Values accepted, separated by '|', where the key is not honoured; "any": all. Null and the default always are.
  std::string accepts;
  /// honoured: the meaning; by construction: why it is always so; refused: why it cannot be had.
  std::string text;
  std::function<void(DeepSpeedDraft&, const Value&)> read;  ///< of an honoured key
};

/// All keys but `optimizer` and `scheduler` parameters, in the order of the documentation.
const std::vector<DeepSpeedKey>& DeepSpeedKeys();

/// The fields of sections that are one row of the table: path, and names separated by blanks.
const std::vector<std::pair<std::string, std::string>>& DeepSpeedSectionFields();

/// Older and shorter spellings that DeepSpeed accepts: spelling, and path in the table.
const std::vector<std::pair<std::string, std::string>>& DeepSpeedRenames();

/// Reads the section at `root.deepspeed` into `spec`; problems are added, not thrown. `ranks` resolves the batch sizes.
void ReadDeepSpeed(const Value& root, int64_t ranks, JobSpec& spec, Problems& problems);

/// The section as YAML lines, two blanks of indentation, every honoured key written out.
std::string DeepSpeedYaml(const JobSpec& spec);

}  // namespace ds
