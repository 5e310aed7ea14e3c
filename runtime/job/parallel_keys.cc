#include <regex>

#include "runtime/base/text.h"
#include "runtime/job/key_rows.h"
#include "runtime/job/key_sections.h"

namespace ds {

using namespace key_rows;

namespace {

/// A parallel degree that this version runs at 1 only.
template <typename Get>
Key Degree(const char* path, Get get, const char* meaning) {
  Key key = Integer(path, get, 1, 1 << 20, nullptr, meaning);
  key.type = "1";
  key.read = [=](JobSpec& spec, const Value& value) {
    get(spec) = ReadInteger(value, 1, 1 << 20);
    if (get(spec) != 1) {
      throw ValueError(
          value,
          "this version has data-parallel ranks and pipeline stages only; write 1, and a higher ZeRO stage or more "
          "stages to save memory");
    }
  };
  return key;
}

constexpr const char* kKinds[] = {"embedding", "attention", "mlp", "head"};
constexpr const char* kType = "type:";

std::string ReadPartition(const Value& value) {
  const std::string& text = AsString(value);
  if (!text.starts_with(kType)) {
    for (const char* name : {"time", "parameters", "uniform"})
      if (Lower(text) == name) return name;
    throw ValueError(value, "not one of the choices; write time, parameters, uniform or type:REGEX");
  }
  try {
    const std::regex regex(text.substr(std::string(kType).size()), std::regex::ECMAScript | std::regex::icase);
    for (const char* kind : kKinds)
      if (std::regex_search(kind, regex)) return text;
  } catch (const std::regex_error&) {
    throw ValueError(value, "no regular expression behind `type:`; write one such as type:attention");
  }
  throw ValueError(value,
                   "finds no segment: their kinds are embedding, attention, mlp and head; write one of these, as in "
                   "type:attention, which gives every stage as many layers");
}

}  // namespace

std::vector<Key> ParallelKeys() {
  return {
      Degree("parallel.tensor", DS_KEY_FIELD(parallel.tensor), "ranks that share each matrix product"),
      Integer("parallel.pipeline", DS_KEY_FIELD(parallel.pipeline), 1, 1 << 20, nullptr,
              "stages that the layers are cut into (docs/parallelism.md); divides the ranks"),
      Degree("parallel.sequence", DS_KEY_FIELD(parallel.sequence), "ranks that share each sequence"),
      Degree("parallel.expert", DS_KEY_FIELD(parallel.expert), "ranks that share the experts"),
      Choice("parallel.schedule", DS_KEY_FIELD(parallel.schedule), kScheduleNames, nullptr,
             "the pipeline's order of work; of use with `parallel.pipeline` above 1 only"),
      Integer("parallel.virtual_stages", DS_KEY_FIELD(parallel.virtual_stages), 1, 1 << 20, "`1`; zb-v: `2`",
              "pieces of the model that a stage holds: 2 or more under interleaved, 2 under zb-v, 1 under the others"),
      Text("parallel.partition", "time, parameters, uniform, type:REGEX", DS_KEY_FIELD(parallel.partition),
           ReadPartition, nullptr,
           "what the stages have equal parts of: predicted time, parameters, segments, or segments whose kind "
           "(embedding, attention, mlp, head) the expression is found in"),
  };
}

}  // namespace ds
