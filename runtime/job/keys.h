// The table of a job spec's keys, apart from its `deepspeed` section. The reader, the resolved spec (ToYaml), the
// suggestions for unknown keys and the tables of docs/job-spec.md are all made from it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/base/value.h"
#include "runtime/job/job_spec.h"

namespace ds {

struct Key {
  std::string path;      ///< "training.steps"
  std::string type;      ///< what may be written, as the documentation tells it
  std::string fallback;  ///< the default, as the documentation tells it; "-": none, the key must be written
  std::string meaning;
  /// Puts the value into the spec. Throws ValueError.
  std::function<void(JobSpec&, const Value&)> read;
  /// The value as YAML; empty: left out of the resolved spec, because nothing is set.
  std::function<std::string(const JobSpec&)> write;
};

/// All keys, section by section, in the order in which ToYaml writes them.
const std::vector<Key>& Keys();

}  // namespace ds
