// The table of DeepSpeed's keys against the list of documented ones, test/data/deepspeed/keys.tsv, which gather_keys.py
// beside it reads out of DeepSpeed's source.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <sstream>

#include "runtime/base/file.h"
#include "runtime/base/json.h"
#include "runtime/base/text.h"
#include "runtime/job/deepspeed.h"
#include "runtime/job/names.h"
#include "runtime/job/optimizers.h"
#include "test/catch.h"
#include "test/unit/job/spec_helpers.h"

namespace ds {
namespace {

struct Documented {
  std::string path, type, fallback;
};

std::vector<Documented> DocumentedKeys() {
  std::istringstream lines(ReadFile(std::string(DS_SOURCE_DIR) + "/test/data/deepspeed/keys.tsv"));
  std::vector<Documented> keys;
  std::string line;
  while (std::getline(lines, line)) {
    if (line.empty() || line[0] == '#') continue;
    Documented key;
    std::istringstream cells(line);
    std::getline(cells, key.path, '\t');
    std::getline(cells, key.type, '\t');
    std::getline(cells, key.fallback, '\t');
    keys.push_back(key);
  }
  return keys;
}

std::string Renamed(const std::string& path) {
  for (const auto& [spelling, meant] : DeepSpeedRenames()) {
    if (spelling == path) return meant;
  }
  return path;
}

bool HasKeysBelow(const std::string& prefix) {
  return std::any_of(DeepSpeedKeys().begin(), DeepSpeedKeys().end(),
                     [&](const DeepSpeedKey& key) { return key.path.compare(0, prefix.size(), prefix) == 0; });
}

/// A default without the differences of writing: quotes, case, blanks, 5e8 for 500000000.
std::string Plainly(const std::string& fallback) {
  std::string out;
  for (const char c : Lower(fallback)) {
    if (c != '"' && c != ' ' && c != '\n') out += c;
  }
  if (!IsNumber(out)) return out;
  Value value;
  value.kind = Value::Kind::scalar;
  value.text = out;
  return JsonNumber(AsDouble(value));
}

const char* NameOfType(DeepSpeedType type) {
  static const char* const names[] = {"boolean", "integer", "number", "text", "list", "list", "map", "any"};
  return names[static_cast<size_t>(type)];
}

/// Whether a row of ours reads what is documented: the same, or more.
bool Covers(const std::string& ours, const std::string& documented) {
  return ours == documented || ours == "any" || (ours == "number" && documented == "integer");
}

/// `optimizer[Adam].params.lr`: the section, the kind and the parameter.
struct ParameterPath {
  std::string section, kind, name;
  explicit ParameterPath(const std::string& path) {
    const size_t open = path.find('['), close = path.find("].params.");
    section = path.substr(0, open);
    kind = path.substr(open + 1, close - open - 1);
    name = path.substr(close + 9);
  }
};

/// The default that the tables of optimizers and schedules have for a parameter; "refused" where its kind is refused;
/// "?" where it is in no table.
std::string ParameterDefault(const ParameterPath& path) {
  const auto among = [&](const std::vector<Parameter>& parameters, const std::vector<FixedParameter>& fixed) {
    for (const Parameter& p : parameters) {
      if (p.name == path.name) return p.fallback.empty() ? std::string("-") : p.fallback;
    }
    for (const FixedParameter& p : fixed) {
      if (p.name == path.name) return p.accepts;
    }
    return std::string("?");
  };
  for (const OptimizerInfo& info : Optimizers()) {
    if (path.section == "optimizer" && info.type == path.kind) return among(info.parameters, info.fixed);
  }
  for (const RefusedOptimizer& info : RefusedOptimizers()) {
    if (path.section != "optimizer" || info.type != path.kind) continue;
    return (" " + info.parameters + " ").find(" " + path.name + " ") != std::string::npos ? "refused" : "?";
  }
  for (const SchedulerInfo& info : Schedulers()) {
    if (path.section == "scheduler" && path.kind == NameOf(info.kind, kSchedulerNames)) {
      return among(info.parameters, SchedulerFixed());
    }
  }
  return "?";
}

TEST_CASE("every documented DeepSpeed key has a class, with its type and default") {
  const std::vector<Documented> documented = DocumentedKeys();
  CHECK(documented.size() > 500);
  for (const Documented& key : documented) {
    CAPTURE(key.path, key.type, key.fallback);
    if (key.path.find("].params.") != std::string::npos) {
      const std::string ours = ParameterDefault(ParameterPath(key.path));
      const bool follows = key.fallback == "null" || ours == "any" || ours == "refused";
      CHECK(ours != "?");
      CHECK((follows || Plainly(ours) == Plainly(key.fallback)));
      continue;
    }
    if (key.path.compare(0, 10, "optimizer.") == 0 || key.path.compare(0, 10, "scheduler.") == 0) continue;
    const DeepSpeedKey* row = FindDeepSpeedKey(Renamed(key.path));
    if (row == nullptr) {
      CHECK(key.type == "map");  // its class is its keys'
      CHECK(HasKeysBelow(key.path + "."));
      continue;
    }
    CHECK(Covers(NameOfType(row->type), key.type));
    CHECK(Plainly(row->fallback) == Plainly(key.fallback));
  }
}

TEST_CASE("every row is a documented key: none is made up") {
  std::set<std::string> documented;
  for (const Documented& key : DocumentedKeys()) documented.insert(Renamed(key.path));
  for (const DeepSpeedKey& key : DeepSpeedKeys()) {
    CAPTURE(key.path);
    const bool free_form = key.path == "amp.*" || key.path == "sparse_attention" || key.path == "checkpoint.writer" ||
                           key.path == "weight_quantization";
    CHECK((free_form || documented.count(key.path) == 1));
  }
}

/// A path that the wild parts of a row stand for.
std::string Written(std::string path) {
  for (size_t star; (star = path.find('*')) != std::string::npos;) path.replace(star, 1, "mine");
  return path;
}

TEST_CASE("every row: it tells why; its default, auto and null are accepted; a misspelt neighbour is not") {
  for (const DeepSpeedKey& key : DeepSpeedKeys()) {
    CAPTURE(key.path);
    CHECK_FALSE(key.text.empty());
    CHECK((key.kind == DeepSpeedClass::honoured ? key.read != nullptr : !key.accepts.empty()));
    CHECK((key.idle.empty() || key.kind == DeepSpeedClass::refused));
    if (key.path.find("batch_size") != std::string::npos && key.idle.empty()) continue;
    if (key.path.find("[]") != std::string::npos) continue;  // no --set for the items of a list
    const std::string path = "deepspeed." + Written(key.path);
    const std::string around = path.substr(0, path.rfind('.'));
    const DeepSpeedKey* section = around == "deepspeed" ? nullptr : FindDeepSpeedKey(around.substr(10));
    const bool alone = section != nullptr;  // the section itself asks for something
    const bool wild = around == "deepspeed.amp";
    for (const std::string& value : {key.fallback == "-"   ? std::string()
                                     : key.fallback == "*" ? std::string("'*'")
                                                           : key.fallback,
                                     std::string("auto"), std::string()}) {
      CAPTURE(value);
      const std::string failure = SpecFailure(TinyJob(), {{path, value}});
      CHECK((failure == "accepted") != (alone && Has(failure, around + ": a map: refused: ")));
    }
    CHECK(
        (wild || Has(SpecFailure(TinyJob(), {{path + "x", "1"}}), path + "x: unknown key; the nearest is deepspeed.")));
  }
}

TEST_CASE("every row: a value of another type is refused, and says what is wanted") {
  const std::map<std::string, std::pair<const char*, const char*>> wrong = {
      {"boolean", {"[]", "write true or false"}}, {"integer", {"ten", "write a whole number"}},
      {"number", {"ten", "write a number"}},      {"text", {"{}", "write a text"}},
      {"map", {"5", "a section is wanted"}},
  };
  for (const DeepSpeedKey& key : DeepSpeedKeys()) {
    const auto found = wrong.find(NameOfType(key.type));
    if (found == wrong.end() || key.path.find("[]") != std::string::npos) continue;
    CAPTURE(key.path);
    const std::string path = "deepspeed." + Written(key.path);
    const std::string failure = SpecFailure(TinyJob(), {{path, found->second.first}});
    CHECK(Has(failure, "--set: " + path + ": "));
    CHECK(Has(failure, found->second.second));
  }
  const std::string specs = "deepspeed.tensor_parallel.partition_config.layer_specs";
  CHECK(Has(SpecFailure(TinyJob(), {{specs, "[{partition_dim: x}]"}}), specs + "[0].partition_dim: x: not a number"));
  CHECK(
      Has(SpecFailure(TinyJob(), {{specs, "[{partition_dmi: 1}]"}}), "the nearest is " + specs + "[0].partition_dim"));
  CHECK(Has(SpecFailure(TinyJob(), {{specs, "[5]"}}), specs + "[0]: 5: a section is wanted"));
  CHECK(SpecFailure(TinyJob(), {{specs, "[{patterns: [a], partition_type: row}]"}}) == "accepted");
}

}  // namespace
}  // namespace ds
