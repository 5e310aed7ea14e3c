// Promise: whatever fails first on any stream of any rank ends every rank, and is the error that is told.
#include "runtime/base/failpoint.h"
#include "test/catch.h"
#include "test/layout/harness.h"

namespace ds::layout_test {
namespace {

struct Failpoints {
  explicit Failpoints(const std::string& entries) { SetFailpoints(entries); }
  ~Failpoints() { SetFailpoints(""); }
};

bool Contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_CASE("a failure on any stream ends all ranks and names rank, step and action") {
  JobSpec spec = TinySpec();
  spec.zero.stage = 3;
  spec.zero.param_persistence_threshold = 0;
  for (const char* action : {"Forward layer1.mlp*", "Gather *layer0.mlp*", "Reduce *layer1.attention*", "Norm*",
                             "OptimizerStep *layer0.attention*", "end"}) {
    CAPTURE(action);
    const Failpoints failpoints("step:2/" + std::string(action) + ",rank=1,throw");
    const RunOutcome run = Run(spec, RunOptions{.ranks = 3});
    CHECK(run.failed_ranks == 3);
    CHECK(Contains(run.error, "failpoint step:2/"));
    if (std::string(action) != "end") CHECK(Contains(run.error, "rank 1, step 2, action "));
    CHECK(run.records.size() <= 2);  // rank 0 may end the step that rank 1 failed in, when it needs nothing more of it
  }
}

TEST_CASE("validation takes the mean over its samples whatever the layout") {
  JobSpec spec = TinySpec();
  spec.data.validation = spec.data.train;
  spec.training.validate_every = 10;
  spec.training.validate_batches = 3;
  spec.training.steps = 12;
  spec.zero.stage = 3;
  const RunOutcome sharded = Run(spec, RunOptions{.ranks = 4});
  spec.zero.stage = 0;
  const RunOutcome whole = Run(spec, RunOptions{.ranks = 4}), single = Run(spec, RunOptions{.ranks = 1});
  RequireSame(whole, sharded);
  for (const RunOutcome* run : {&sharded, &whole, &single}) {
    CHECK(run->records[8].validation_loss.has_value() == false);
    REQUIRE(run->records[9].validation_loss.has_value());
    REQUIRE(run->records[11].validation_loss.has_value());  // the last step
    CHECK(*run->records[11].validation_loss < *run->records[9].validation_loss);
  }
  CHECK(*whole.result.validation_loss == *sharded.result.validation_loss);
  CHECK(*single.result.validation_loss == Approx(*whole.result.validation_loss).epsilon(1e-5));
}

}  // namespace
}  // namespace ds::layout_test
