// Builders of rows of the table of keys, for the files that list them (key_sections.h): a row names its key, what may
// be written, the default, what it means, and where in a JobSpec it goes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/job/job_spec.h"
#include "runtime/job/keys.h"
#include "runtime/job/names.h"
#include "runtime/job/read_value.h"
#include "runtime/job/yaml.h"

namespace ds::key_rows {

/// Access to one member of a JobSpec.
#define DS_KEY_FIELD(member) \
  [](JobSpec & spec) -> auto& { return spec.member; }

/// The most of a count without a limit of its own: every such count is exact in metrics, which other programs read as
/// doubles.
inline constexpr int64_t kMostSteps = int64_t{1} << 53;

/// Reads through an accessor that wants a mutable spec; nothing is changed.
template <typename Get>
const auto& Look(Get get, const JobSpec& spec) {
  return get(const_cast<JobSpec&>(spec));
}

/// Fills in what every row has. `fallback`: nullptr for the default that the code has.
template <typename Read, typename Write>
Key Row(const char* path, const std::string& type, const char* fallback, const char* meaning, Read read, Write write) {
  return {path, type, fallback != nullptr ? fallback : "`" + write(JobSpec{}) + "`", meaning, read, write};
}

template <typename Get>
Key Integer(const char* path, Get get, int64_t low, int64_t high, const char* fallback, const char* meaning) {
  return Row(
      path, "whole number, " + std::to_string(low) + " or more", fallback, meaning,
      [=](JobSpec& spec, const Value& value) { get(spec) = ReadInteger(value, low, high); },
      [=](const JobSpec& spec) { return std::to_string(Look(get, spec)); });
}

template <typename Get>
Key Flag(const char* path, Get get, const char* fallback, const char* meaning) {
  return Row(
      path, "true, false", fallback, meaning, [=](JobSpec& spec, const Value& value) { get(spec) = AsBool(value); },
      [=](const JobSpec& spec) { return std::string(Look(get, spec) ? "true" : "false"); });
}

template <typename Get, typename Read>
Key Number(const char* path, const char* type, Get get, Read read, const char* fallback, const char* meaning) {
  return Row(
      path, type, fallback, meaning, [=](JobSpec& spec, const Value& value) { get(spec) = read(value); },
      [=](const JobSpec& spec) { return JsonNumber(Look(get, spec)); });
}

template <typename Get, typename E>
Key Choice(const char* path, Get get, const Names<E>& names, const char* fallback, const char* meaning) {
  return Row(
      path, Choices(names), fallback, meaning,
      [get, &names](JobSpec& spec, const Value& value) { get(spec) = ReadName(value, names); },
      [get, &names](const JobSpec& spec) { return NameOf(Look(get, spec), names); });
}

template <typename Get, typename Read>
Key Text(const char* path, const char* type, Get get, Read read, const char* fallback, const char* meaning) {
  return Row(
      path, type, fallback, meaning, [=](JobSpec& spec, const Value& value) { get(spec) = read(value); },
      [=](const JobSpec& spec) { return YamlScalar(Look(get, spec)); });
}

template <typename Get>
Key Paths(const char* path, const char* what, Get get, const char* fallback, const char* meaning) {
  const auto read = [=](JobSpec& spec, const Value& value) {
    auto& paths = get(spec);
    paths.clear();
    const auto add = [&](const Value& item) {
      if (AsString(item).empty()) throw ValueError(item, std::string("an empty path; write a ") + what);
      if (item.text.find('\0') != std::string::npos) throw ValueError(item, std::string("no path; write a ") + what);
      paths.push_back(item.text);
    };
    if (value.kind == Value::Kind::list) {
      for (const Value& item : value.items) add(item);
    } else {
      add(value);
    }
  };
  const auto write = [=](const JobSpec& spec) {
    std::vector<std::string> paths;
    for (const std::string& one : Look(get, spec)) paths.push_back(YamlScalar(one));
    return "[" + Join(paths, ", ") + "]";
  };
  return Row(path, "a path or a list of paths", fallback, meaning, read, write);
}

template <typename Get>
Key Bytes(const char* path, Get get, const char* fallback, const char* meaning) {
  const auto read = [=](JobSpec& spec, const Value& value) {
    const int64_t bytes = AsBytes(value);
    if (bytes == 0) throw ValueError(value, "no memory at all; write bytes such as 64MiB, or leave the key out");
    get(spec) = bytes;
  };
  const auto write = [=](const JobSpec& spec) {
    const auto& bytes = Look(get, spec);
    return bytes ? std::to_string(*bytes) : std::string("null");
  };
  return Row(path, "bytes, or with a unit: `64MiB`", fallback, meaning, read, write);
}

}  // namespace ds::key_rows
