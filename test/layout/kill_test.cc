// Promise: after kill -9 in the middle of a step, or anywhere in the writing of a checkpoint, a resume from the newest
// complete checkpoint continues the uninterrupted run bit for bit.
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <set>

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
  spec.checkpoint.keep = 1;
  return spec;
}

std::set<std::string> Names(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.insert(entry.path().filename().string());
  return names;
}

// Hidden: the process that dies. DS_FAILPOINT says where, DS_KILL_DIRECTORY is the run's.
TEST_CASE("child: killed", "[.kill-child]") {
  const char* directory = std::getenv("DS_KILL_DIRECTORY");
  REQUIRE(directory != nullptr);
  Run(KilledJob(), RunOptions{.ranks = 2, .directory = directory});
}

TEST_CASE("a run killed in a step or anywhere in a checkpoint resumes bit for bit") {
  const RunOutcome whole = Run(KilledJob(), RunOptions{.ranks = 2, .directory = NewDirectory()});
  REQUIRE(whole.records.size() == 20);
  const Manifest manifest = ReadManifest(whole.result.checkpoint);
  const auto slices = std::count_if(manifest.slices.begin(), manifest.slices.end(),
                                    [](const ManifestSlice& slice) { return slice.file == "rank-1.safetensors"; });
  const int64_t writes = slices + 2;  // of rank 1's file: its header's size, its header, its slices
  struct Case {
    std::string failpoint;
    std::set<int64_t> resumes_after;  // where the write in flight may or may not have ended: both
  };
  for (const Case& killed :
       {Case{"step:8/BackwardWeight layer1.mlp*,rank=1,kill", {0, 5}},
        Case{"step:11/OptimizerStep *layer0.mlp*,rank=0,kill", {5, 10}},
        Case{"checkpoint.snapshot,rank=0,hit=2,kill", {5}}, Case{"checkpoint.shard,rank=1,hit=2,kill", {5}},
        Case{"safetensors.write,rank=1,hit=" + std::to_string(writes + writes / 2) + ",kill", {5}},
        Case{"safetensors.write,rank=1,hit=" + std::to_string(writes / 2) + ",kill", {0}},
        Case{"safetensors.sync,rank=0,hit=3,kill", {10}}, Case{"checkpoint.manifest,hit=2,kill", {5}},
        Case{"checkpoint.rename,hit=3,kill", {10}}, Case{"checkpoint.latest,hit=3,kill", {15}},
        Case{"checkpoint.remove,hit=1,kill", {10}}, Case{"checkpoint.remove.files,hit=2,kill", {15}}}) {
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
    CHECK(damaged.empty());  // what was not committed is not even listed
    const int64_t after = checkpoint ? ReadManifest(*checkpoint).training.step : 0;
    CHECK(killed.resumes_after.count(after) == 1);
    // As left by a kill between the two calls that replace `latest`.
    std::filesystem::create_directories(directory + "/checkpoints");
    std::filesystem::create_symlink("step-5", directory + "/checkpoints/latest.tmp.1");
    const RunOutcome resumed = Run(
        KilledJob(), RunOptions{.ranks = 2, .resume = checkpoint ? checkpoint->string() : "", .directory = directory});
    RunOutcome rest = whole;
    std::erase_if(rest.records, [&](const StepRecord& record) { return record.step <= after; });
    RequireSame(rest, resumed);
    CHECK(Names(directory + "/checkpoints") == std::set<std::string>{"latest", "step-20"});
  }
}

}  // namespace
}  // namespace ds::layout_test
