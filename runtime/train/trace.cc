#include "runtime/train/trace.h"

#include <set>

#include "runtime/base/file.h"
#include "runtime/base/json.h"
#include "runtime/plan/planner.h"

namespace ds {

void WriteTrace(const std::filesystem::path& path, const ModelLayout& layout, const Plan& plan,
                const Timeline& timeline) {
  JsonWriter json;
  json.BeginObject().Field("displayTimeUnit", "ms").Key("traceEvents").BeginList();
  std::set<StreamKind> streams = {StreamKind::compute, StreamKind::gather, StreamKind::reduce};
  for (const Action& action : plan.actions) streams.insert(action.stream);
  for (StreamKind stream : streams) {
    json.BeginObject().Field("ph", "M").Field("name", "thread_name").Field("pid", plan.options.job_rank());
    json.Field("tid", static_cast<int>(stream)).Key("args").BeginObject().Field("name", NameOf(stream)).EndObject();
    json.EndObject();
  }
  for (const Span& span : timeline.spans) {
    const Action& action = plan.actions[span.action];
    json.BeginObject().Field("ph", "X").Field("cat", NameOf(action.kind));
    json.Field("name", Describe(layout, plan, static_cast<size_t>(span.action)));
    json.Field("pid", plan.options.job_rank()).Field("tid", static_cast<int>(action.stream));
    json.Field("ts", span.begin * 1e6).Field("dur", (span.end - span.begin) * 1e6);
    json.Key("args").BeginObject().Field("bytes", action.bytes).Field("flops", action.flops).EndObject();
    json.EndObject();
  }
  json.EndList().EndObject();
  MakeDirectories(path.parent_path());
  WriteFileAtomically(path, json.str());
}

}  // namespace ds
