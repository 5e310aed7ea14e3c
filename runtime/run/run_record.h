// What a run's files say: lines of metrics.jsonl and the summary, from what workers told.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "proto/deepshard.pb.h"
#include "runtime/job/job_spec.h"
#include "runtime/run/outcome.h"

namespace ds {

/// A line of metrics.jsonl, keys as the documentation gives them (docs/operations.md).
std::string MetricLine(const deepshard::v1::StepRecord& record);

/// What a summary says of the run itself.
struct RunFacts {
  const JobSpec& spec;
  int world = 1;
  std::string parent;  ///< RUN-ID that is resumed; empty: none
};

/// Gathers what the summary needs while the job runs.
class RunRecord {
 public:
  void Add(const deepshard::v1::StepRecord& record);
  /// Rank 0's result.
  void SetResult(const deepshard::v1::WorkerResult& result) { result_ = result; }

  /// Of the preflight, that were not made.
  void SetSkippedChecks(std::vector<std::string> names) { skipped_checks_ = std::move(names); }

  /// summary.json
  std::string Summary(const RunFacts& run, const JobOutcome& outcome, int64_t attempt) const;

 private:
  std::optional<deepshard::v1::StepRecord> last_;
  std::optional<double> validation_loss_;
  std::vector<double> tokens_per_second_;
  std::optional<deepshard::v1::WorkerResult> result_;
  std::vector<std::string> skipped_checks_;
};

}  // namespace ds
