#include "test/parity/record.h"

#include <cstring>
#include <stdexcept>
#include <utility>

#include "runtime/base/json.h"
#include "runtime/base/number.h"

namespace ds::test {
namespace {

const Value& Field(const Value& map, const char* key) {
  const Value* value = map.Find(key);
  if (!value) throw std::runtime_error(std::string("the record has no ") + key);
  return *value;
}

template <class Enum>
Enum OneOf(const Value& map, const char* key, const std::vector<std::pair<std::string, Enum>>& names) {
  for (const auto& [name, value] : names)
    if (AsString(Field(map, key)) == name) return value;
  throw std::runtime_error(std::string("the record's ") + key + " is " + AsString(Field(map, key)));
}

ModelConfig ReadModel(const Value& v) {
  ModelConfig m;
  const std::pair<const char*, int64_t*> sizes[] = {{"layers", &m.layers},
                                                    {"hidden", &m.hidden},
                                                    {"heads", &m.heads},
                                                    {"kv_heads", &m.kv_heads},
                                                    {"ffn", &m.ffn},
                                                    {"vocabulary", &m.vocabulary},
                                                    {"max_positions", &m.max_positions}};
  for (auto [key, member] : sizes) *member = AsInteger(Field(v, key));
  m.norm = OneOf<Norm>(v, "norm", {{"layer_norm", Norm::layer_norm}, {"rms_norm", Norm::rms_norm}});
  m.norm_eps = AsDouble(Field(v, "norm_eps"));
  m.position = OneOf<PositionKind>(v, "position", {{"learned", PositionKind::learned}, {"rope", PositionKind::rope}});
  if (m.position == PositionKind::rope) m.rope_theta = AsDouble(Field(v, "rope_theta"));
  m.activation =
      OneOf<Activation>(v, "activation", {{"gelu_tanh", Activation::gelu_tanh}, {"swiglu", Activation::swiglu}});
  m.bias = AsBool(Field(v, "bias"));
  m.qkv_bias = AsBool(Field(v, "qkv_bias"));
  m.tied_head = AsBool(Field(v, "tied_head"));
  return m;
}

template <class T>
std::vector<double> ToDouble(const SafetensorsFile::Entry& entry) {
  std::vector<double> values;
  for (int64_t i = 0; i < entry.numel(); ++i) {
    T value;
    std::memcpy(&value, entry.data + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    values.push_back(static_cast<double>(value));
  }
  return values;
}

}  // namespace

Record::Record(const std::string& name)
    : file_(std::string(DS_SOURCE_DIR) + "/test/data/parity_" + name + ".safetensors") {
  Value v = ParseJson(file_.metadata().at("parity"), file_.path().string());
  model_ = ReadModel(Field(v, "model"));
  const Value& o = Field(v, "optimizer");
  auto number = [&o](const char* key) { return AsDouble(Field(o, key)); };
  optimizer_ = {number("lr"), number("beta1"), number("beta2"), number("eps"), number("weight_decay"), number("clip")};
}

std::vector<double> Record::Read(const std::string& name) const {
  const SafetensorsFile::Entry& entry = file_.At(name);
  if (entry.dtype == "F32") return ToDouble<float>(entry);
  if (entry.dtype == "F64") return ToDouble<double>(entry);
  if (entry.dtype == "I32") return ToDouble<int32_t>(entry);
  throw std::runtime_error(name + " is of dtype " + entry.dtype);
}

int64_t Record::ParameterCount() const {
  int64_t count = 0;
  for (const auto& [name, entry] : file_.entries()) count += name.starts_with("initial.");
  return count;
}

}  // namespace ds::test
