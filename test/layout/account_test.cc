// Promise: what a run says of its time and traffic adds up, and what was predicted is what happened where that is
// exact.
#include <filesystem>
#include <set>

#include "runtime/base/file.h"
#include "runtime/base/json.h"
#include "runtime/plan/planner.h"
#include "test/catch.h"
#include "test/layout/harness.h"

namespace ds::layout_test {
namespace {

TEST_CASE("the parts of a step add up to it") {
  JobSpec spec = TinySpec();
  spec.zero.stage = 3;
  const RunOutcome run = Run(spec, RunOptions{.ranks = 2});
  REQUIRE(run.records.size() == 20);
  for (const StepRecord& record : run.records) {
    CHECK(record.compute_ms > 0);
    CHECK(record.comm_exposed_ms > 0);
    CHECK(record.data_ms >= 0);
    CHECK(record.overhead_ms >= 0);
    CHECK(record.compute_ms + record.comm_exposed_ms + record.data_ms + record.overhead_ms == Approx(record.step_ms));
    CHECK(record.tokens == record.step * 12 * 16);
    CHECK(record.tokens_per_second == Approx(12 * 16 * 1000 / record.step_ms));
  }
}

TEST_CASE("bytes moved are the predicted ones") {
  for (int stage = 0; stage <= 3; ++stage) {
    CAPTURE(stage);
    JobSpec spec = TinySpec();
    spec.zero.stage = stage;
    spec.training.steps = 2;
    const RunOutcome run = Run(spec, RunOptions{.ranks = 3});
    CHECK(run.result.measured.bytes_moved.count("Reduce") == 1);
    CHECK(run.result.measured.bytes_moved.count("Gather") == (stage == 0 ? 0 : 1));
    CHECK(run.result.measured.bytes_moved == run.result.predicted.bytes_moved);
  }
}

TEST_CASE("a profiled step leaves a trace of every action of every rank, other steps none") {
  JobSpec spec = TinySpec();
  spec.zero.stage = 3;
  spec.training.steps = 3;
  spec.training.profile_steps = {2};
  const RunOptions options{.ranks = 2, .directory = NewDirectory()};
  REQUIRE(Run(spec, options).error == "");
  std::set<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(options.directory + "/profile"))
    files.insert(entry.path().filename().string());
  CHECK(files == std::set<std::string>{"step-2-rank-0.json", "step-2-rank-1.json"});

  spec.batch.micro_batch_size = 6;
  const ModelLayout layout = LayoutOf(spec, 2);
  const Plan plan = BuildPlan(layout, PlanOptionsOf(spec, 1, 2));
  const Value trace = ParseJson(ReadFile(options.directory + "/profile/step-2-rank-1.json"), "trace");
  std::multiset<std::string> traced, planned;
  for (const Value& event : trace.Find("traceEvents")->items)
    if (event.Find("ph")->text == "X") traced.insert(event.Find("name")->text);
  for (size_t i = 0; i < plan.actions.size(); ++i) planned.insert(Describe(layout, plan, i));
  CHECK(traced == planned);
}

}  // namespace
}  // namespace ds::layout_test
