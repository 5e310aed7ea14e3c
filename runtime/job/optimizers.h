// DeepSpeed's `optimizer` and `scheduler` sections: kinds, parameters, defaults.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "runtime/base/value.h"
#include "runtime/job/job_spec.h"
#include "runtime/job/problems.h"

namespace ds {

/// One parameter of an optimizer or a schedule.
struct Parameter {
  enum class Type { number, positive, fraction, whole, count, flag, warmup_type, betas };
  std::string name;
  Type type;
  std::string fallback;  ///< as JSON; "": must be given; another parameter's name: follows it
  std::string meaning;
};

/// A parameter that DeepSpeed or PyTorch has and this program needs not, or has not: only `accepts` may be written
/// (runtime/job/deepspeed_values.h).
struct FixedParameter {
  std::string name;
  std::string accepts;
  std::string reason;
};

struct OptimizerInfo {
  std::string type;
  std::vector<Parameter> parameters;
  std::vector<FixedParameter> fixed;
};
const std::vector<OptimizerInfo>& Optimizers();

/// Parameters that every optimizer of PyTorch has and this program needs not.
const std::vector<FixedParameter>& OptimizerFixed();

struct SchedulerInfo {
  SchedulerKind kind;
  std::vector<Parameter> parameters;
};
const std::vector<SchedulerInfo>& Schedulers();

/// Parameters that every schedule has and this program sets by itself.
const std::vector<FixedParameter>& SchedulerFixed();

/// An optimizer of DeepSpeed that this version does not have.
struct RefusedOptimizer {
  std::string type;
  std::string reason;
  std::string parameters;  ///< their names, separated by blanks: not read
};
const std::vector<RefusedOptimizer>& RefusedOptimizers();

/// `value`: the section, null where absent. Fills spec.optimizer, adds notes; problems are added, not thrown.
void ReadOptimizer(const Value& value, JobSpec& spec, Problems& problems);

/// Likewise for spec.scheduler; call after ReadOptimizer (OneCycle's momentum depends on it, "auto" learning rates
/// too).
void ReadScheduler(const Value& value, JobSpec& spec, Problems& problems);

/// Both sections as YAML lines, two blanks of indentation.
std::string OptimizerYaml(const JobSpec& spec);

}  // namespace ds
