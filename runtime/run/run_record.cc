#include "runtime/run/run_record.h"

#include <algorithm>

#include "runtime/base/json.h"

namespace ds {
namespace {

namespace pb = ::deepshard::v1;

template <class T>
void FieldOrNull(JsonWriter& json, const char* key, bool present, const T& value) {
  if (present) {
    json.Field(key, value);
  } else {
    json.Key(key).Null();
  }
}

void WritePeaks(JsonWriter& json, int64_t device, int64_t host, int64_t file) {
  json.Key("peak_bytes").BeginObject();
  json.Field("device", device).Field("host", host).Field("file", file).EndObject();
}

void WriteFootprint(JsonWriter& json, const char* key, const std::optional<pb::Footprint>& footprint) {
  json.Key(key);
  if (!footprint) {
    json.Null();
    return;
  }
  json.BeginObject().Field("step_ms", footprint->step_ms());
  WritePeaks(json, footprint->device_peak(), footprint->host_peak(), footprint->file_peak());
  json.Key("bytes_moved").BeginObject();
  std::vector<std::pair<std::string, int64_t>> moved(footprint->bytes_moved().begin(), footprint->bytes_moved().end());
  std::sort(moved.begin(), moved.end());
  for (const auto& [kind, bytes] : moved) json.Field(kind, bytes);
  json.EndObject().EndObject();
}

void WriteCause(JsonWriter& json, const std::optional<Cause>& cause) {
  json.Key("cause");
  if (!cause) {
    json.Null();
    return;
  }
  json.BeginObject().Field("kind", cause->kind);
  FieldOrNull(json, "host", !cause->host.empty(), cause->host);
  FieldOrNull(json, "rank", cause->rank >= 0, cause->rank);
  FieldOrNull(json, "signal", cause->signal != 0, cause->signal);
  FieldOrNull(json, "code", cause->code != 0, cause->code);
  json.Field("message", cause->message).EndObject();
}

double Median(std::vector<double> values) {
  size_t middle = values.size() / 2;
  std::nth_element(values.begin(), values.begin() + static_cast<long>(middle), values.end());
  if (values.size() % 2 == 1) return values[middle];
  double below = *std::max_element(values.begin(), values.begin() + static_cast<long>(middle));
  return (below + values[middle]) / 2;
}

}  // namespace

std::string MetricLine(const pb::StepRecord& record) {
  JsonWriter json;
  json.BeginObject().Field("step", record.step()).Field("attempt", record.attempt()).Field("loss", record.loss());
  json.Field("grad_norm", record.grad_norm()).Field("lr", record.lr()).Field("tokens", record.tokens());
  json.Field("tokens_per_second", record.tokens_per_second()).Field("step_ms", record.step_ms());
  json.Field("compute_ms", record.compute_ms()).Field("comm_exposed_ms", record.comm_exposed_ms());
  json.Field("io_exposed_ms", record.io_exposed_ms()).Field("data_ms", record.data_ms());
  json.Field("overhead_ms", record.overhead_ms());
  FieldOrNull(json, "mfu", record.has_mfu(), record.mfu());
  WritePeaks(json, record.peak_device_bytes(), record.peak_host_bytes(), record.peak_file_bytes());
  if (record.has_validation_loss()) json.Field("validation_loss", record.validation_loss());
  if (record.has_checkpoint_stall_ms()) json.Field("checkpoint_stall_ms", record.checkpoint_stall_ms());
  if (record.has_loss_scale()) json.Field("loss_scale", record.loss_scale());
  if (record.skipped()) json.Field("skipped", true);
  json.EndObject();
  return json.str();
}

void RunRecord::Add(const pb::StepRecord& record) {
  last_ = record;
  tokens_per_second_.push_back(record.tokens_per_second());
  if (record.has_validation_loss()) validation_loss_ = record.validation_loss();
}

std::string RunRecord::Summary(const RunFacts& run, const JobOutcome& outcome, int64_t attempt) const {
  JsonWriter json;
  json.BeginObject().Field("status", outcome.status).Field("exit_code", outcome.exit_code);
  WriteCause(json, outcome.cause);
  json.Key("victims").BeginList();
  for (const WorkerEnd& victim : outcome.victims) {
    json.BeginObject().Field("rank", victim.rank).Field("code", victim.code);
    FieldOrNull(json, "message", !victim.message.empty(), victim.message);
    json.EndObject();
  }
  json.EndList();
  json.Field("steps", result_ ? result_->steps() : last_ ? last_->step() : 0);
  FieldOrNull(json, "final_loss", result_ || last_, result_ ? result_->final_loss() : last_ ? last_->loss() : 0);
  bool from_result = result_ && result_->has_validation_loss();
  FieldOrNull(json, "validation_loss", from_result || validation_loss_,
              from_result ? result_->validation_loss() : validation_loss_.value_or(0));
  FieldOrNull(json, "median_tokens_per_second", result_ || !tokens_per_second_.empty(),
              result_                      ? result_->median_tokens_per_second()
              : tokens_per_second_.empty() ? 0
                                           : Median(tokens_per_second_));
  WriteFootprint(json, "predicted",
                 result_ && result_->has_predicted() ? std::optional(result_->predicted()) : std::nullopt);
  WriteFootprint(json, "measured",
                 result_ && result_->has_measured() ? std::optional(result_->measured()) : std::nullopt);
  FieldOrNull(json, "checkpoint", result_ && !result_->checkpoint().empty(), result_ ? result_->checkpoint() : "");
  json.Field("world", run.world);
  const ParallelConfig& parallel = run.spec.parallel;
  int64_t rest = parallel.tensor * parallel.pipeline * parallel.sequence;
  json.Key("mesh").BeginObject().Field("data", run.world / rest).Field("tensor", parallel.tensor);
  json.Field("pipeline", parallel.pipeline).Field("sequence", parallel.sequence);
  json.Field("expert", parallel.expert).EndObject();
  FieldOrNull(json, "parent", !run.parent.empty(), run.parent);
  json.Key("skipped_checks").BeginList();
  for (const std::string& name : skipped_checks_) json.Write(name);
  json.EndList();
  json.Field("attempts", attempt).EndObject();
  return json.str();
}

}  // namespace ds
