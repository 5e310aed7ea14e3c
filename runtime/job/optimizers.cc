#include "runtime/job/optimizers.h"

#include <algorithm>
#include <map>

#include "runtime/base/json.h"
#include "runtime/base/text.h"
#include "runtime/job/deepspeed_values.h"
#include "runtime/job/names.h"

namespace ds {
namespace {

using Type = Parameter::Type;
using Numbers = std::map<std::string, double>;

double ReadParameter(const Value& value, Type type) {
  switch (type) {
    case Type::number:
      return ReadNumber(value, 0, 1e300);
    case Type::positive:
      return ReadPositive(value);
    case Type::fraction:
      return ReadFraction(value);
    case Type::whole:
      return static_cast<double>(ReadInteger(value, 1, int64_t{1} << 53));
    case Type::count:
      return static_cast<double>(ReadInteger(value, 0, int64_t{1} << 53));
    case Type::flag:
      return AsBool(value) ? 1 : 0;
    case Type::warmup_type:
      return ReadName(value, Names<int>{{"log", 0}, {"linear", 1}});
    case Type::betas:
      break;
  }
  throw ValueError(value, "write two numbers, [0.9, 0.999]");
}

/// The parameters of one section: reads what is written, fills in what is not.
class ParameterReader {
 public:
  /// `autos`: what "auto" means where that is not the default.
  ParameterReader(std::string prefix, const std::vector<Parameter>& table, const std::vector<FixedParameter>& fixed,
                  Numbers autos, JobSpec& spec, Problems& problems)
      : prefix_(std::move(prefix)),
        table_(table),
        fixed_(fixed),
        autos_(std::move(autos)),
        spec_(spec),
        problems_(problems) {}

  Numbers Read(const Value* section) {
    static const Value none;
    if (section == nullptr) section = &none;
    if (section->kind != Value::Kind::map && !section->is_null()) {
      problems_.Add(prefix_, ValueError(*section, "a section of parameters is wanted"));
      return {};
    }
    for (const auto& [name, value] : section->fields) {
      if (name.empty() || name[0] != '_') ReadField(name, value);
    }
    for (const Parameter& parameter : table_) FillIn(parameter);
    return std::move(numbers_);
  }

  /// Whether the user wrote a value, or auto, for the parameter.
  bool Written(const std::string& name) const {
    return std::find(written_.begin(), written_.end(), name) != written_.end();
  }

 private:
  void ReadField(const std::string& name, const Value& value) {
    const std::string path = prefix_ + "." + name;
    try {
      for (const Parameter& parameter : table_) {
        if (parameter.name == name) return ReadKnown(parameter, path, value);
      }
      for (const FixedParameter& parameter : fixed_) {
        if (parameter.name == name) return CheckFixed(parameter, value);
      }
    } catch (const ValueError& error) {
      failed_.push_back(name);
      return problems_.Add(path, error);
    }
    std::vector<std::string> names;
    for (const Parameter& parameter : table_) names.push_back(parameter.name);
    problems_.AddKey(path, value, "unknown key; the nearest is " + prefix_ + "." + Nearest(name, names));
  }

  void ReadKnown(const Parameter& parameter, const std::string& path, const Value& value) {
    if (value.is_null()) return;
    written_.push_back(parameter.name);
    if (IsAuto(value)) return ReadAuto(parameter, path);
    if (parameter.type == Type::betas) return ReadBetas(parameter.name, value);
    numbers_[parameter.name] = ReadParameter(value, parameter.type);
  }

  void ReadAuto(const Parameter& parameter, const std::string& path) {
    const auto known = autos_.find(parameter.name);
    if (known != autos_.end()) {
      numbers_[parameter.name] = known->second;
      spec_.notes.push_back(path + ": auto is " + JsonNumber(known->second) + ".");
    } else if (!parameter.fallback.empty()) {
      spec_.notes.push_back(path + ": auto is " + parameter.fallback + ", DeepSpeed's default.");
    }
  }

  void ReadBetas(const std::string& name, const Value& value) {
    if (value.kind != Value::Kind::list || value.items.size() != 2) {
      throw ValueError(value, "write two numbers, [0.9, 0.999]");
    }
    numbers_[name + "1"] = ReadFraction(value.items[0]);
    numbers_[name + "2"] = ReadFraction(value.items[1]);
  }

  static void CheckFixed(const FixedParameter& parameter, const Value& value) {
    if (IsAccepted(value, parameter.accepts) || IsAuto(value)) return;
    throw ValueError(value,
                     "refused: " + parameter.reason + "; remove the key, or write " + ShowAccepted(parameter.accepts));
  }

  void FillIn(const Parameter& parameter) {
    const std::string& name = parameter.name;
    if (numbers_.count(name) + numbers_.count(name + "1") > 0) return;
    if (std::find(failed_.begin(), failed_.end(), name) != failed_.end()) return;
    if (parameter.fallback.empty()) {
      return problems_.Add(prefix_ + "." + name, "missing; it has no default, write it: " + parameter.meaning);
    }
    if (parameter.fallback == "optimizer.lr") {
      numbers_[name] = spec_.optimizer.lr;
      return;
    }
    for (const Parameter& other : table_) {
      if (other.name != parameter.fallback) continue;
      if (numbers_.count(other.name) > 0) numbers_[name] = numbers_[other.name];
      return;
    }
    Value value = ParseJson(parameter.fallback == "log" ? "\"log\"" : parameter.fallback, "default");
    if (parameter.type == Type::betas) return ReadBetas(name, value);
    numbers_[name] = ReadParameter(value, parameter.type);
  }

  std::string prefix_;
  const std::vector<Parameter>& table_;
  const std::vector<FixedParameter>& fixed_;
  Numbers autos_;
  JobSpec& spec_;
  Problems& problems_;
  Numbers numbers_;
  std::vector<std::string> written_, failed_;
};

/// Checks the fields of an `optimizer` or `scheduler` section; returns its type's value, or nullptr where there is
/// none.
const Value* FindType(const char* section, const Value& value, Problems& problems) {
  const std::string path = std::string("deepspeed.") + section;
  if (value.is_null()) return nullptr;
  if (value.kind != Value::Kind::map) {
    problems.Add(path, ValueError(value, "a section with type and params is wanted"));
    return nullptr;
  }
  bool empty = true;
  for (const auto& [name, field] : value.fields) {
    if (!name.empty() && name[0] == '_') continue;
    empty = false;
    if (name == "type" || name == "params") continue;
    if (name == "legacy_fusion" && std::string(section) == "optimizer") {
      if (!IsAccepted(field, "false")) {
        problems.Add(path + ".legacy_fusion",
                     ValueError(field, "refused: there is one optimizer kernel; remove the key"));
      }
      continue;
    }
    problems.AddKey(path + "." + name, field,
                    "unknown key; the nearest is " + path + "." + Nearest(name, {"type", "params"}));
  }
  const Value* type = value.Find("type");
  if (type != nullptr && !type->is_null() && !IsAuto(*type)) return type;
  if (!empty && (type == nullptr || type->is_null())) problems.Add(path + ".type", "missing; write the kind");
  return nullptr;
}

const OptimizerInfo* FindOptimizer(const Value& type, Problems& problems) {
  const char* path = "deepspeed.optimizer.type";
  try {
    const std::string name = Lower(AsString(type));
    std::vector<std::string> names;
    for (const OptimizerInfo& info : Optimizers()) {
      if (Lower(info.type) == name) return &info;
      names.push_back(info.type);
    }
    for (const RefusedOptimizer& refused : RefusedOptimizers()) {
      if (Lower(refused.type) != name) continue;
      throw ValueError(type, "refused: " + refused.reason + "; write one of " + Join(names, ", "));
    }
    throw ValueError(type, "unknown optimizer; write one of " + Join(names, ", "));
  } catch (const ValueError& error) {
    problems.Add(path, error);
    return nullptr;
  }
}

double Get(const Numbers& numbers, const std::string& name, double fallback) {
  const auto found = numbers.find(name);
  return found == numbers.end() ? fallback : found->second;
}

OptimizerKind KindOf(const std::string& type, bool adam_w_mode) {
  if (type == "AdamW") return OptimizerKind::adamw;
  if (type == "Adam") return adam_w_mode ? OptimizerKind::adamw : OptimizerKind::adam;
  if (type == "SGD") return OptimizerKind::sgd;
  if (type == "Lion") return OptimizerKind::lion;
  return type == "Adagrad" ? OptimizerKind::adagrad : OptimizerKind::rmsprop;
}

void CheckOptimizer(const OptimizerInfo& info, bool adam_w_mode, const OptimizerConfig& optimizer, Problems& problems) {
  const std::string prefix = "deepspeed.optimizer.params.";
  if (info.type == "AdamW" && !adam_w_mode) {
    problems.Add(prefix + "adam_w_mode",
                 "AdamW decays weights by themselves; write type Adam for Adam's own weight decay");
  }
  if (optimizer.nesterov && (optimizer.momentum <= 0 || optimizer.dampening != 0)) {
    problems.Add(prefix + "nesterov",
                 "Nesterov's momentum needs momentum above 0 and dampening 0; write those, or false");
  }
}

bool HasBetas(OptimizerKind kind) {
  return kind == OptimizerKind::adam || kind == OptimizerKind::adamw || kind == OptimizerKind::lion;
}

void CheckScheduler(const ParameterReader& reader, JobSpec& spec, Problems& problems) {
  Numbers& numbers = spec.scheduler.parameters;
  const std::string prefix = "deepspeed.scheduler.params.";
  if (numbers.count("cycle_momentum") > 0 && numbers["cycle_momentum"] != 0 && !HasBetas(spec.optimizer.kind)) {
    numbers["cycle_momentum"] = 0;
    spec.notes.push_back(prefix + "cycle_momentum is false: the optimizer has no betas to cycle" +
                         (reader.Written("cycle_momentum") ? ", whatever is written." : "."));
  }
  const auto ordered = [&](const char* low, const char* high) {
    if (numbers.count(low) == 0 || numbers.count(high) == 0 || numbers[low] <= numbers[high]) return;
    problems.Add(prefix + low,
                 "above " + std::string(high) + ", which is " + JsonNumber(numbers[high]) + "; write at most that");
  };
  ordered("cycle_min_lr", "cycle_max_lr");
  ordered("cycle_min_mom", "cycle_max_mom");
  ordered("warmup_min_lr", "warmup_max_lr");
  if (numbers.count("total_num_steps") > 0 && numbers["total_num_steps"] < numbers["warmup_num_steps"]) {
    spec.notes.push_back(prefix +
                         "total_num_steps is below warmup_num_steps: the learning rate never reaches its top.");
  } else if (spec.training.steps > 0 && numbers.count("warmup_num_steps") > 0 &&
             static_cast<double>(spec.training.steps) < numbers["warmup_num_steps"]) {
    spec.notes.push_back(prefix + "warmup_num_steps, which is " + JsonNumber(numbers["warmup_num_steps"]) +
                         ", is above training.steps: the learning rate never reaches its top.");
  }
}

const SchedulerInfo& InfoOf(SchedulerKind kind) {
  return *std::find_if(Schedulers().begin(), Schedulers().end(), [&](const auto& info) { return info.kind == kind; });
}

std::string ParameterYaml(const Parameter& parameter, double value) {
  std::string text = JsonNumber(value);
  if (parameter.type == Type::flag) text = value != 0 ? "true" : "false";
  if (parameter.type == Type::warmup_type) text = value != 0 ? "linear" : "log";
  return "      " + parameter.name + ": " + text + "\n";
}

}  // namespace

void ReadOptimizer(const Value& value, JobSpec& spec, Problems& problems) {
  const Value* type = FindType("optimizer", value, problems);
  if (const Value* written = value.Find("type"); written != nullptr && IsAuto(*written)) {
    spec.notes.push_back("deepspeed.optimizer.type: auto is AdamW.");
  }
  const OptimizerInfo* info = type != nullptr ? FindOptimizer(*type, problems) : &Optimizers().front();
  if (info == nullptr) return;
  std::vector<FixedParameter> fixed = info->fixed;
  fixed.insert(fixed.end(), OptimizerFixed().begin(), OptimizerFixed().end());
  ParameterReader reader("deepspeed.optimizer.params", info->parameters, fixed, {}, spec, problems);
  const Numbers numbers = reader.Read(value.Find("params"));
  const bool adam_w_mode = Get(numbers, "adam_w_mode", 1) != 0;
  OptimizerConfig& out = spec.optimizer;
  out.kind = KindOf(info->type, adam_w_mode);
  out.lr = Get(numbers, "lr", out.lr);
  out.beta1 = Get(numbers, "betas1", out.beta1);
  out.beta2 = Get(numbers, "betas2", out.beta2);
  out.eps = Get(numbers, "eps", out.eps);
  out.weight_decay = Get(numbers, "weight_decay", 0);
  if (Get(numbers, "torch_adam", 0) != 0 && out.kind == OptimizerKind::adamw && !reader.Written("weight_decay")) {
    out.weight_decay = 0.01;
  }
  out.bias_correction = Get(numbers, "bias_correction", 1) != 0;
  out.momentum = Get(numbers, "momentum", 0);
  out.dampening = Get(numbers, "dampening", 0);
  out.alpha = Get(numbers, "alpha", out.alpha);
  out.nesterov = Get(numbers, "nesterov", 0) != 0;
  CheckOptimizer(*info, adam_w_mode, out, problems);
}

void ReadScheduler(const Value& value, JobSpec& spec, Problems& problems) {
  const Value* type = FindType("scheduler", value, problems);
  if (type == nullptr) return;
  try {
    spec.scheduler.kind = ReadName(*type, kSchedulerNames);
  } catch (const ValueError& error) {
    return problems.Add("deepspeed.scheduler.type", error);
  }
  Numbers autos = {{"warmup_max_lr", spec.optimizer.lr}};
  if (spec.training.steps > 0) autos["total_num_steps"] = static_cast<double>(spec.training.steps);
  ParameterReader reader("deepspeed.scheduler.params", InfoOf(spec.scheduler.kind).parameters, SchedulerFixed(), autos,
                         spec, problems);
  spec.scheduler.parameters = reader.Read(value.Find("params"));
  CheckScheduler(reader, spec, problems);
}

std::string OptimizerYaml(const JobSpec& spec) {
  const OptimizerConfig& optimizer = spec.optimizer;
  static const Names<OptimizerKind> types = {{"Adam", OptimizerKind::adam},       {"AdamW", OptimizerKind::adamw},
                                             {"SGD", OptimizerKind::sgd},         {"Lion", OptimizerKind::lion},
                                             {"Adagrad", OptimizerKind::adagrad}, {"RMSprop", OptimizerKind::rmsprop}};
  const Numbers numbers = {{"lr", optimizer.lr},
                           {"eps", optimizer.eps},
                           {"weight_decay", optimizer.weight_decay},
                           {"bias_correction", optimizer.bias_correction},
                           {"adam_w_mode", optimizer.kind == OptimizerKind::adamw},
                           {"momentum", optimizer.momentum},
                           {"alpha", optimizer.alpha},
                           {"dampening", optimizer.dampening},
                           {"nesterov", optimizer.nesterov}};
  const std::string type = NameOf(optimizer.kind, types);
  std::string out = "  optimizer:\n    type: " + type + "\n    params:\n";
  for (const OptimizerInfo& info : Optimizers()) {
    if (info.type != type) continue;
    for (const Parameter& parameter : info.parameters) {
      if (parameter.type == Type::betas) {
        out += "      betas: [" + JsonNumber(optimizer.beta1) + ", " + JsonNumber(optimizer.beta2) + "]\n";
      } else if (const auto found = numbers.find(parameter.name); found != numbers.end()) {
        out += ParameterYaml(parameter, found->second);
      }
    }
  }
  if (spec.scheduler.kind == SchedulerKind::none) return out + "  scheduler: null\n";
  out += "  scheduler:\n    type: " + NameOf(spec.scheduler.kind, kSchedulerNames) + "\n    params:\n";
  for (const Parameter& parameter : InfoOf(spec.scheduler.kind).parameters) {
    out += ParameterYaml(parameter, spec.scheduler.parameters.at(parameter.name));
  }
  return out;
}

}  // namespace ds
