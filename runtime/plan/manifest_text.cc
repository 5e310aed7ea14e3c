// manifest.json as text, both ways.
#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "runtime/base/checksum.h"
#include "runtime/base/error.h"
#include "runtime/base/json.h"
#include "runtime/base/number.h"
#include "runtime/base/text.h"
#include "runtime/plan/manifest.h"

namespace ds {
namespace {

constexpr const char* kFormat = "deepshard-checkpoint";
constexpr std::string_view kTailBegin = ",\"xxh64\":\"", kTailEnd = "\"}\n";
constexpr size_t kLongestReason = 1000;  // of an error, in bytes
constexpr size_t kTailSize = kTailBegin.size() + 16 + kTailEnd.size();

/// JSON has no infinities and no NaN; a diverged run's checkpoint must still say what its loss was.
void WriteDouble(JsonWriter& json, const char* key, double value) {
  if (std::isfinite(value))
    json.Field(key, value);
  else
    json.Field(key, std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
}

double ReadDouble(const Value& value) {
  if (value.text == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (value.text == "inf") return std::numeric_limits<double>::infinity();
  if (value.text == "-inf") return -std::numeric_limits<double>::infinity();
  return AsDouble(value);
}

/// Checked access to the fields of one JSON object of the manifest.
class Object {
 public:
  Object(const Value& value, std::string place) : value_(value), place_(std::move(place)) {
    if (value.kind != Value::Kind::map) throw RuntimeError(place_ + " is not an object");
  }
  const Value& At(const char* key) const {
    const Value* field = value_.Find(key);
    if (!field) throw RuntimeError(place_ + " lacks `" + key + "`");
    return *field;
  }
  const Value* Find(const char* key) const { return value_.Find(key); }
  const std::vector<Value>& List(const char* key) const {
    const Value& list = At(key);
    if (list.kind != Value::Kind::list) throw RuntimeError(place_ + ": `" + key + "` is not a list");
    return list.items;
  }
  int64_t Integer(const char* key) const { return AsInteger(At(key)); }
  int64_t Count(const char* key) const {
    int64_t value = Integer(key);
    if (value < 0) throw RuntimeError(place_ + ": `" + key + "` is negative: " + std::to_string(value));
    return value;
  }
  int Int(const char* key) const {
    int64_t value = Count(key);
    if (value > std::numeric_limits<int>::max())
      throw RuntimeError(place_ + ": `" + key + "` is impossible: " + std::to_string(value));
    return static_cast<int>(value);
  }
  const std::string& Text(const char* key) const { return AsString(At(key)); }

 private:
  const Value& value_;
  std::string place_;
};

void WriteTraining(JsonWriter& json, const TrainingState& state) {
  json.BeginObject()
      .Field("step", state.step)
      .Field("tokens", state.tokens)
      .Field("samples", state.samples)
      .Field("optimizer_steps", state.optimizer_steps);
  WriteDouble(json, "loss_scale", state.loss_scale);
  json.Field("good_steps", state.good_steps)
      .Field("hysteresis_left", state.hysteresis_left)
      .Field("seed", state.seed)
      .Field("data_width", state.data_width);
  WriteDouble(json, "final_loss", state.final_loss);
  json.Field("data", state.data).EndObject();
}

TrainingState ReadTraining(const Object& object) {
  TrainingState state;
  state.step = object.Count("step");
  state.tokens = object.Count("tokens");
  state.samples = object.Count("samples");
  state.optimizer_steps = object.Count("optimizer_steps");
  state.loss_scale = ReadDouble(object.At("loss_scale"));
  state.good_steps = object.Count("good_steps");
  state.hysteresis_left = object.Int("hysteresis_left");
  state.seed = AsUnsigned(object.At("seed"));
  state.data_width = object.Int("data_width");
  state.final_loss = ReadDouble(object.At("final_loss"));
  if (const Value* data = object.Find("data")) state.data = AsString(*data);
  return state;
}

Shape ReadShape(const std::vector<Value>& dims, const std::string& param) {
  int64_t d[Shape::kMaxRank] = {};
  if (dims.empty() || dims.size() > Shape::kMaxRank)
    throw RuntimeError("parameter " + param + " has " + std::to_string(dims.size()) + " dimensions, not 1 to 4");
  int64_t numel = 1;
  for (size_t i = 0; i < dims.size(); ++i) {
    d[i] = AsInteger(dims[i]);
    if (d[i] <= 0 || __builtin_mul_overflow(numel, d[i], &numel))
      throw RuntimeError("parameter " + param + " has an impossible shape");
  }
  switch (dims.size()) {
    case 1:
      return Shape{d[0]};
    case 2:
      return Shape{d[0], d[1]};
    case 3:
      return Shape{d[0], d[1], d[2]};
    default:
      return Shape{d[0], d[1], d[2], d[3]};
  }
}

/// A file's name, which must not lead out of the checkpoint's folder.
const std::string& CheckedFileName(const std::string& name) {
  if (name.empty() || name[0] == '.' || name.find('/') != std::string::npos || name == "manifest.json")
    throw RuntimeError("`" + name + "` is not a name of a file of a checkpoint");
  return name;
}

Manifest ReadFields(const Value& root) {
  Object object(root, "it");
  Manifest manifest;
  if (object.Text("format") != kFormat)
    throw RuntimeError("its format is `" + object.Text("format") + "`, not " + kFormat);
  if (object.Integer("version") != kManifestVersion)
    throw RuntimeError("its version is " + object.Text("version") + "; this program reads version " +
                       std::to_string(kManifestVersion));
  manifest.written_ns = object.Count("written_ns");
  manifest.ranks = object.Int("ranks");
  manifest.training = ReadTraining(Object(object.At("training"), "`training`"));
  manifest.training.job_yaml = object.Text("job");
  for (const Value& item : object.List("files")) {
    Object file(item, "an entry of `files`");
    std::optional<uint64_t> checksum = ParseChecksum(file.Text("xxh64"));
    if (!checksum) throw RuntimeError("`" + file.Text("xxh64") + "` is not a checksum");
    manifest.files.push_back({CheckedFileName(file.Text("name")), file.Count("bytes"), *checksum});
  }
  for (const Value& item : object.List("parameters")) {
    Object entry(item, "an entry of `parameters`");
    const std::string& name = entry.Text("name");
    if (!manifest.parameters.emplace(name, ReadShape(entry.List("shape"), name)).second)
      throw RuntimeError("parameter " + name + " is listed twice");
    for (const Value& piece : entry.List("slices")) {
      Object slice(piece, "a slice of " + name);
      std::optional<StateKind> state = ParseCheckpointState(slice.Text("state"));
      if (!state) throw RuntimeError("parameter " + name + " has a state `" + slice.Text("state") + "`");
      manifest.slices.push_back(
          {name, *state, slice.Count("begin"), slice.Count("count"), slice.Text("file"), slice.Text("tensor")});
    }
  }
  return manifest;
}

void CheckCoverage(const Manifest& manifest) {
  std::set<std::string> files;
  for (const ManifestFile& file : manifest.files)
    if (!files.insert(file.name).second) throw RuntimeError("file " + file.name + " is listed twice");

  std::map<std::pair<std::string, StateKind>, std::vector<const ManifestSlice*>> states;
  for (const ManifestSlice& slice : manifest.slices) {
    if (!files.count(slice.file))
      throw RuntimeError("a slice of " + slice.param + " is in " + slice.file + ", which is not listed");
    if (!manifest.parameters.count(slice.param))
      throw RuntimeError("a slice belongs to " + slice.param + ", which is not listed");
    states[{slice.param, slice.state}].push_back(&slice);
  }
  for (const auto& [name, shape] : manifest.parameters)
    if (!states.count({name, StateKind::master})) throw RuntimeError("parameter " + name + " has no values");
  for (auto& [key, slices] : states) {
    std::sort(slices.begin(), slices.end(), [](auto* a, auto* b) { return a->begin < b->begin; });
    const std::string what = CheckpointStateName(key.second) + " of parameter " + key.first;
    const int64_t numel = manifest.parameters.at(key.first).numel();
    int64_t next = 0;
    for (const ManifestSlice* slice : slices) {
      if (slice->count <= 0 || slice->count > numel - slice->begin)
        throw RuntimeError(what + " has a slice [" + std::to_string(slice->begin) + ", +" +
                           std::to_string(slice->count) + ") that is not within its " + std::to_string(numel) +
                           " elements");
      if (slice->begin != next)
        throw RuntimeError("elements [" + std::to_string(std::min(next, slice->begin)) + ", " +
                           std::to_string(std::max(next, slice->begin)) + ") of " + what +
                           (slice->begin < next ? " are held twice" : " are missing"));
      next += slice->count;
    }
    if (next != numel)
      throw RuntimeError("elements [" + std::to_string(next) + ", " + std::to_string(numel) + ") of " + what +
                         " are missing");
  }
}

}  // namespace

std::string CheckpointStateName(StateKind state) {
  switch (state) {
    case StateKind::master:
      return "master";
    case StateKind::moment1:
      return "moment1";
    case StateKind::moment2:
      return "moment2";
    default:
      throw RuntimeError("state " + std::to_string(static_cast<int>(state)) + " has no place in a checkpoint");
  }
}

std::optional<StateKind> ParseCheckpointState(const std::string& name) {
  if (name == "master") return StateKind::master;
  if (name == "moment1") return StateKind::moment1;
  if (name == "moment2") return StateKind::moment2;
  return std::nullopt;
}

std::string ToJson(const Manifest& manifest) {
  JsonWriter json;
  json.BeginObject()
      .Field("format", kFormat)
      .Field("version", kManifestVersion)
      .Field("written_ns", manifest.written_ns)
      .Field("ranks", manifest.ranks)
      .Key("training");
  WriteTraining(json, manifest.training);
  json.Field("job", manifest.training.job_yaml);
  json.Key("files").BeginList();
  for (const ManifestFile& file : manifest.files)
    json.BeginObject()
        .Field("name", file.name)
        .Field("bytes", file.bytes)
        .Field("xxh64", ChecksumText(file.xxh64))
        .EndObject();
  json.EndList();

  std::map<std::string, std::vector<const ManifestSlice*>> slices;
  for (const ManifestSlice& slice : manifest.slices) slices[slice.param].push_back(&slice);
  json.Key("parameters").BeginList();
  for (const auto& [name, shape] : manifest.parameters) {
    json.BeginObject().Field("name", name).Key("shape").BeginList();
    for (int i = 0; i < shape.rank(); ++i) json.Write(shape[i]);
    json.EndList().Key("slices").BeginList();
    for (const ManifestSlice* slice : slices[name])
      json.BeginObject()
          .Field("state", CheckpointStateName(slice->state))
          .Field("begin", slice->begin)
          .Field("count", slice->count)
          .Field("file", slice->file)
          .Field("tensor", slice->tensor)
          .EndObject();
    json.EndList().EndObject();
  }
  json.EndList().EndObject();

  std::string text = json.str();
  text.pop_back();  // the closing brace comes after the checksum
  return text + std::string(kTailBegin) + ChecksumText(Checksum(text)) + std::string(kTailEnd);
}

Manifest ParseManifest(const std::string& text, const std::string& name) {
  // Reasons quote what the file says, which may be anything: one line of a bounded length tells it.
  auto fail = [&](const std::string& reason) { return RuntimeError(name + ": " + Shown(reason, kLongestReason)); };
  std::string_view tail =
      text.size() < kTailSize ? std::string_view() : std::string_view(text).substr(text.size() - kTailSize);
  if (!tail.starts_with(kTailBegin) || !tail.ends_with(kTailEnd))
    throw fail("the manifest is cut short or is not one: it does not end with its checksum");
  std::optional<uint64_t> stated = ParseChecksum(tail.substr(kTailBegin.size(), 16));
  uint64_t computed = Checksum(std::string_view(text).substr(0, text.size() - kTailSize));
  if (!stated || *stated != computed)
    throw fail("the manifest is damaged: its checksum is " + ChecksumText(computed) + ", it states " +
               (stated ? ChecksumText(*stated) : "none"));
  try {
    Manifest manifest = ReadFields(ParseJson(text, name));
    CheckCoverage(manifest);
    return manifest;
  } catch (const UsageError& error) {  // of the JSON and its numbers; they name the place
    throw RuntimeError(error.what());
  } catch (const RuntimeError& error) {
    throw fail(error.what());
  }
}

}  // namespace ds
