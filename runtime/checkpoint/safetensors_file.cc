#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/json.h"
#include "runtime/base/number.h"
#include "runtime/checkpoint/safetensors.h"

namespace ds {
namespace {

constexpr uint64_t kMaxHeader = 100'000'000;  // the reference implementation's bound

constexpr size_t kMaxValues = 4'000'000;  // of its JSON: some 400,000 tensors

/// Bytes of an element of any dtype that the format knows; 0: unknown.
int64_t ElementBytes(const std::string& dtype) {
  static const std::map<std::string, int64_t> sizes{{"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1},
                                                    {"U16", 2},  {"I16", 2}, {"F16", 2}, {"BF16", 2},    {"U32", 4},
                                                    {"I32", 4},  {"F32", 4}, {"U64", 8}, {"I64", 8},     {"F64", 8}};
  auto found = sizes.find(dtype);
  return found == sizes.end() ? 0 : found->second;
}

const Value& Field(const Value& map, const char* key) {
  const Value* field = map.Find(key);
  if (!field) throw RuntimeError(std::string("lacks `") + key + "`");
  return *field;
}

/// Non-negative integers of a list.
std::vector<int64_t> Integers(const Value& list) {
  if (list.kind != Value::Kind::list) throw RuntimeError("has " + Describe(list) + " where a list is wanted");
  std::vector<int64_t> values;
  for (const Value& item : list.items) {
    values.push_back(AsInteger(item));
    if (values.back() < 0) throw RuntimeError("has a negative number: " + item.text);
  }
  return values;
}

struct Placed {
  int64_t begin, end;
  const std::string* name;
};

/// One tensor's entry, checked by itself; `offsets` receives its place.
SafetensorsFile::Entry ReadEntry(const Value& value, int64_t data_bytes, int64_t offsets[2]) {
  if (value.kind != Value::Kind::map) throw RuntimeError("is " + Describe(value) + ", not an object");
  SafetensorsFile::Entry entry;
  entry.dtype = AsString(Field(value, "dtype"));
  entry.shape = Integers(Field(value, "shape"));
  std::vector<int64_t> range = Integers(Field(value, "data_offsets"));
  int64_t expected = ElementBytes(entry.dtype);
  if (expected == 0) throw RuntimeError("has the unknown dtype `" + entry.dtype + "`");
  for (int64_t d : entry.shape)
    if (__builtin_mul_overflow(expected, d, &expected)) throw RuntimeError("has an impossible shape");
  if (range.size() != 2 || range[0] > range[1]) throw RuntimeError("has no valid data_offsets");
  if (range[1] > data_bytes)
    throw RuntimeError("ends at byte " + std::to_string(range[1]) + " of the data, which has " +
                       std::to_string(data_bytes) + ": the file is cut short or damaged");
  entry.bytes = range[1] - range[0];
  if (entry.bytes != expected)
    throw RuntimeError("takes " + std::to_string(entry.bytes) + " bytes, its dtype and shape need " +
                       std::to_string(expected));
  std::copy(range.begin(), range.end(), offsets);
  return entry;
}

void CheckPlaces(std::vector<Placed> places, int64_t data_bytes) {
  std::sort(places.begin(), places.end(),
            [](const Placed& a, const Placed& b) { return std::tie(a.begin, a.end) < std::tie(b.begin, b.end); });
  int64_t next = 0;
  for (const Placed& place : places) {
    if (place.begin != next)
      throw RuntimeError("tensor " + *place.name + " begins at byte " + std::to_string(place.begin) + " of the data, " +
                         std::to_string(next) + " is expected: " + (place.begin < next ? "tensors overlap" : "a hole"));
    next = place.end;
  }
  if (next != data_bytes)
    throw RuntimeError("the data has " + std::to_string(data_bytes) + " bytes, its tensors end at byte " +
                       std::to_string(next));
}

}  // namespace

int64_t SafetensorsFile::Entry::numel() const {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  return n;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : map_(path) {
  auto fail = [&](const std::string& reason) { return RuntimeError(path.string() + ": " + reason); };
  uint64_t header_bytes = 0;
  if (map_.size() < sizeof header_bytes)
    throw fail("a file of " + std::to_string(map_.size()) + " bytes is no safetensors file");
  std::memcpy(&header_bytes, map_.data(), sizeof header_bytes);
  if (header_bytes > kMaxHeader)
    throw fail("not a safetensors file: a header of " + std::to_string(header_bytes) + " bytes");
  if (header_bytes > map_.size() - sizeof header_bytes)
    throw fail("cut short: its header should have " + std::to_string(header_bytes) + " bytes, the file has " +
               std::to_string(map_.size()));
  std::string_view header(map_.data() + sizeof header_bytes, header_bytes);
  const char* data = header.data() + header.size();
  const int64_t data_bytes = static_cast<int64_t>(map_.size() - sizeof header_bytes - header_bytes);

  std::vector<Placed> places;
  try {
    if (!header.starts_with('{')) throw RuntimeError("its header does not begin with `{`");
    JsonOptions options;
    options.max_values = kMaxValues;
    Value root = ParseJson(header, "header", options);
    for (const auto& [name, value] : root.fields) {
      if (name == "__metadata__") {
        if (value.kind != Value::Kind::map) throw RuntimeError("its __metadata__ is not an object");
        for (const auto& [key, text] : value.fields) metadata_[key] = AsString(text);
        continue;
      }
      int64_t offsets[2];
      try {
        entries_[name] = ReadEntry(value, data_bytes, offsets);
      } catch (const Error& error) {
        throw RuntimeError("tensor " + name + " " + error.what());
      }
      entries_[name].data = data + offsets[0];
      places.push_back({offsets[0], offsets[1], &entries_.find(name)->first});
    }
    CheckPlaces(std::move(places), data_bytes);
  } catch (const Error& error) {
    throw fail(error.what());
  }
}

const SafetensorsFile::Entry& SafetensorsFile::At(const std::string& name) const {
  auto found = entries_.find(name);
  if (found == entries_.end()) throw RuntimeError(path().string() + " holds no tensor " + name);
  return found->second;
}

}  // namespace ds
