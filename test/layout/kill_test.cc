// Promise: after kill -9 in the middle of a step, or anywhere in the writing of a checkpoint, a resume from the newest
// complete checkpoint continues the uninterrupted run bit for bit.
#include <sys/wait.h>

#include <csignal>
#include <cstdlib>

#include "runtime/plan/manifest.h"
#include "test/catch.h"
#include "test/layout/harness.h"

namespace ds::layout_test {
namespace {

JobSpec KilledJob() {
  JobSpec spec = TinySpec();
  spec.zero.stage = 3;
  spec.precision = Precision::bf16;
  spec.model.dropout = 0.1;
  spec.checkpoint.every = 5;
  return spec;
}

// Hidden: the process that dies. DS_FAILPOINT says where, DS_KILL_DIRECTORY is the run's.
TEST_CASE("child: killed", "[.kill-child]") {
  const char* directory = std::getenv("DS_KILL_DIRECTORY");
  REQUIRE(directory != nullptr);
  Run(KilledJob(), RunOptions{.ranks = 2, .directory = directory});
}

TEST_CASE("a run killed in a step or in a checkpoint resumes bit for bit") {
  const RunOutcome whole = Run(KilledJob(), RunOptions{.ranks = 2});
  REQUIRE(whole.records.size() == 20);
  struct Case {
    const char* failpoint;
    int64_t resumes_after;
  };
  for (const Case& killed :
       {Case{"step:8/BackwardWeight layer1.mlp*,rank=1,kill", 5},
        Case{"step:11/OptimizerStep *layer0.mlp*,rank=0,kill", 10}, Case{"checkpoint.shard,rank=1,hit=2,kill", 5},
        Case{"checkpoint.manifest,hit=2,kill", 5}, Case{"checkpoint.rename,hit=3,kill", 10}}) {
    CAPTURE(killed.failpoint);
    const std::string directory = NewDirectory();
    const std::string command = "DS_FAILPOINT='" + std::string(killed.failpoint) + "' DS_KILL_DIRECTORY='" + directory +
                                "' exec '" + DS_BIN_DIR + "/test-layout' '[.kill-child]' > /dev/null 2>&1";
    const int status = std::system(command.c_str());
    // The shell that exec'ed the test was the test.
    REQUIRE(WIFSIGNALED(status));
    REQUIRE(WTERMSIG(status) == SIGKILL);

    std::vector<std::string> damaged;
    const auto checkpoint = NewestComplete(directory, &damaged);
    REQUIRE(checkpoint.has_value());
    CHECK(damaged.empty());  // what was not committed is not even listed
    CHECK(checkpoint->filename() == "step-" + std::to_string(killed.resumes_after));
    const RunOutcome resumed =
        Run(KilledJob(), RunOptions{.ranks = 2, .resume = checkpoint->string(), .directory = directory});
    RunOutcome rest = whole;
    std::erase_if(rest.records, [&](const StepRecord& record) { return record.step <= killed.resumes_after; });
    RequireSame(rest, resumed);
  }
}

}  // namespace
}  // namespace ds::layout_test
