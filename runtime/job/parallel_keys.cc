#include "runtime/job/key_sections.h"

#include "runtime/job/key_rows.h"

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
          value, "this version shards over data-parallel ranks only; write 1, and a higher ZeRO stage to save memory");
    }
  };
  return key;
}

std::string ReadPartition(const Value& value) {
  if (AsString(value) != "time") {
    throw ValueError(value, "this version cuts no pipelines, so there is nothing to partition; write time");
  }
  return value.text;
}

Key ScheduleKey() {
  return Row(
      "parallel.schedule", "1f1b", nullptr,
      "the pipeline's order of work; of use with `parallel.pipeline` above 1 only",
      [](JobSpec& spec, const Value& value) {
        spec.parallel.schedule = ReadName(value, kScheduleNames);
        if (spec.parallel.schedule != ScheduleKind::one_f_one_b) {
          throw ValueError(value, "this version runs no pipelines, so there is nothing to schedule; write 1f1b");
        }
      },
      [](const JobSpec& spec) { return NameOf(spec.parallel.schedule, kScheduleNames); });
}

}  // namespace

std::vector<Key> ParallelKeys() {
  return {
      Degree("parallel.tensor", DS_KEY_FIELD(parallel.tensor), "ranks that share each matrix product"),
      Degree("parallel.pipeline", DS_KEY_FIELD(parallel.pipeline), "stages that the layers are cut into"),
      Degree("parallel.sequence", DS_KEY_FIELD(parallel.sequence), "ranks that share each sequence"),
      Degree("parallel.expert", DS_KEY_FIELD(parallel.expert), "ranks that share the experts"),
      ScheduleKey(),
      Degree("parallel.virtual_stages", DS_KEY_FIELD(parallel.virtual_stages),
             "stages a rank holds under interleaved schedules"),
      Text("parallel.partition", "time", DS_KEY_FIELD(parallel.partition), ReadPartition, nullptr,
           "what balances the stages"),
  };
}

}  // namespace ds
