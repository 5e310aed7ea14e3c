// Promise: checkpoints that are written while training goes on change neither the run nor a byte of what is written;
// whoever fails to write ends every rank with the path and the reason, and what was complete stays so.
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <regex>

#include "runtime/base/failpoint.h"
#include "runtime/base/file.h"
#include "runtime/plan/manifest.h"
#include "test/catch.h"
#include "test/layout/harness.h"

namespace ds::layout_test {
namespace {

namespace fs = std::filesystem;

bool Contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

JobSpec EveryFive() {
  JobSpec spec = TinySpec();
  spec.checkpoint.every = 5;
  return spec;
}

/// What writing threads wait at until it is opened.
class Gate {
 public:
  void Pass() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return open_; });
  }
  void Open() {
    std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

/// Where writing threads wait, and what they say.
struct Gates {
  Gate begin;   ///< before the first all-gather, with which the commit of a checkpoint begins
  Gate failed;  ///< opened when a rank tells the others that it failed
};

class GatedCommunicator : public Communicator {
 public:
  GatedCommunicator(std::unique_ptr<Communicator> inner, Gates& gates) : inner_(std::move(inner)), gates_(gates) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  void AllGather(Tensor shard, Tensor whole) override {
    gates_.begin.Pass();
    inner_->AllGather(shard, whole);
  }
  void ReduceScatter(Tensor whole, Tensor shard, Tensor workspace) override {
    inner_->ReduceScatter(whole, shard, workspace);
  }
  void AllToAll(Tensor send, Tensor receive) override { inner_->AllToAll(send, receive); }
  void Broadcast(Tensor tensor, int root) override {
    inner_->Broadcast(tensor, root);
    gates_.failed.Open();
  }
  void Send(Tensor tensor, int peer) override { inner_->Send(tensor, peer); }
  void Receive(Tensor tensor, int peer) override { inner_->Receive(tensor, peer); }
  void Barrier() override { inner_->Barrier(); }
  std::unique_ptr<Communicator> Split(int color, int key) override { return inner_->Split(color, key); }
  void Abort(const std::string& reason) noexcept override { inner_->Abort(reason); }

 private:
  std::unique_ptr<Communicator> inner_;
  Gates& gates_;
};

Decorate GateCheckpoints(Gates& gates) {
  return [&gates](const std::string& stream, std::unique_ptr<Communicator> made) -> std::unique_ptr<Communicator> {
    if (stream != "checkpoint") return made;
    return std::make_unique<GatedCommunicator>(std::move(made), gates);
  };
}

/// A checkpoint's files, without what differs between two that hold the same: when it was written, what the job says of
/// how it writes, and the checksum over both.
std::map<std::string, std::string> Contents(const fs::path& folder) {
  std::map<std::string, std::string> contents;
  for (const auto& entry : fs::directory_iterator(folder)) {
    std::string bytes = ReadFile(entry.path());
    if (entry.path().filename() == "manifest.json") {
      bytes = std::regex_replace(bytes, std::regex("\"written_ns\":[0-9]+"), "");
      bytes = std::regex_replace(bytes, std::regex("async: (true|false)"), "");
      bytes = bytes.substr(0, bytes.rfind(",\"xxh64\""));
    }
    contents[entry.path().filename().string()] = bytes;
  }
  return contents;
}

void RequireSameCheckpoints(const std::string& one, const std::string& other, int count) {
  const std::vector<CheckpointEntry> entries = ListCheckpoints(one + "/checkpoints");
  REQUIRE(entries.size() == static_cast<size_t>(count));
  for (const CheckpointEntry& entry : entries) {
    CAPTURE(entry.folder);
    VerifyCheckpoint(entry.folder);
    const fs::path twin = other + "/checkpoints/" + entry.folder.filename().string();
    const auto a = Contents(entry.folder), b = Contents(twin);
    REQUIRE(a.size() >= 2);
    REQUIRE((a == b));  // not by its bytes: they are long
  }
}

std::vector<std::string> Told(const RunOutcome& run, const std::string& kind) {
  std::vector<std::string> messages;
  for (const auto& [event, message] : run.events)
    if (event == kind) messages.push_back(message);
  return messages;
}

TEST_CASE("asynchronous checkpoints change neither the run nor a byte of what is written") {
  struct Case {
    int ranks, stage;
    Precision precision;
  };
  for (const Case& layout : {Case{1, 0, Precision::fp32}, Case{2, 1, Precision::bf16}, Case{3, 3, Precision::fp32}}) {
    CAPTURE(layout.ranks, layout.stage);
    JobSpec spec = EveryFive();
    spec.zero.stage = layout.stage;
    spec.precision = layout.precision;
    spec.model.dropout = 0.1;
    const RunOptions async{.ranks = layout.ranks, .directory = NewDirectory()};
    const RunOptions sync{.ranks = layout.ranks, .directory = NewDirectory()};
    REQUIRE(spec.checkpoint.async);
    const RunOutcome one = Run(spec, async);
    spec.checkpoint.async = false;
    const RunOutcome other = Run(spec, sync);
    RequireSame(one, other);
    RequireSameCheckpoints(async.directory, sync.directory, 4);
    spec.checkpoint.every = -1;
    const RunOutcome none = Run(spec, RunOptions{.ranks = layout.ranks});
    CHECK(none.losses() == one.losses());
    CHECK(Told(one, "checkpoint").size() == 4);
    CHECK(Contains(Told(one, "checkpoint")[0], "step 5: " + async.directory + "/checkpoints/step-5"));
    for (const StepRecord& record : one.records) {
      CHECK(record.checkpoint_stall_ms.has_value() == (record.step % 5 == 0));
      CHECK(record.peak_host_bytes == one.result.predicted.host_peak);
    }
    CHECK(one.result.predicted.host_peak > 0);
    CHECK(other.result.predicted.host_peak == 0);
  }
}

TEST_CASE("training goes on while a checkpoint is written, and tells of it when it is complete") {
  Gates gates;
  RunOptions options{.ranks = 2, .directory = NewDirectory()};
  options.decorate = GateCheckpoints(gates);
  bool early = false;
  options.on_step = [&](int rank, const StepRecord& record) {
    if (rank != 0 || record.step < 5 || record.step > 8) return;
    early = early || fs::exists(options.directory + "/checkpoints/step-5");
    if (record.step == 8) gates.begin.Open();
  };
  const RunOutcome run = Run(EveryFive(), options);
  REQUIRE(run.error == "");
  CHECK_FALSE(early);  // three steps were done before the first checkpoint could be
  REQUIRE(run.records.size() == 20);
  CHECK(Told(run, "checkpoint").size() == 4);
  // It holds what was at step 5, not what training made of it since.
  JobSpec sync = EveryFive();
  sync.checkpoint.async = false;
  const RunOptions other{.ranks = 2, .directory = NewDirectory()};
  REQUIRE(Run(sync, other).error == "");
  RequireSameCheckpoints(options.directory, other.directory, 4);
}

TEST_CASE("a checkpoint that is due while one is written waits for it, and says so") {
  Gates gates;
  RunOptions options{.ranks = 2, .directory = NewDirectory()};
  options.decorate = GateCheckpoints(gates);
  int due = 0;
  options.on_state = [&](int rank, const std::string& state) {
    if (rank == 0 && state == "checkpointing" && ++due == 2) gates.begin.Open();
  };
  const RunOutcome run = Run(EveryFive(), options);
  REQUIRE(run.error == "");
  CHECK(due == 4);
  REQUIRE(Told(run, "checkpoint_wait").size() == 1);  // once, however often
  CHECK(Contains(Told(run, "checkpoint_wait")[0], "step 10: training waited "));
  CHECK(Contains(Told(run, "checkpoint_wait")[0], "checkpoint.every=5"));
  REQUIRE(run.records[9].checkpoint_stall_ms.has_value());
  CHECK(Told(run, "checkpoint").size() == 4);
  for (const CheckpointEntry& entry : ListCheckpoints(options.directory + "/checkpoints"))
    VerifyCheckpoint(entry.folder);
}

TEST_CASE("a job that is stopped waits for the checkpoint in flight") {
  JobSpec spec = EveryFive();
  spec.checkpoint.on_signal = false;
  Gates gates;
  RunOptions options{.ranks = 2, .directory = NewDirectory(), .stop_after = 6};
  options.decorate = GateCheckpoints(gates);
  options.on_step = [&](int, const StepRecord& record) {
    if (record.step == 7) gates.begin.Open();
  };
  const RunOutcome run = Run(spec, options);
  REQUIRE(run.error == "");
  CHECK(run.result.stopped);
  CHECK(run.result.steps == 7);
  CHECK(run.result.checkpoint == options.directory + "/checkpoints/step-5");
  CHECK(Told(run, "checkpoint").size() == 1);
  VerifyCheckpoint(run.result.checkpoint);
}

TEST_CASE("whoever cannot write ends every rank with path and reason; what was complete stays") {
  const char full[] = "No space left on device", broken[] = "Input/output error";
  const std::string partial = "/step-5.partial";
  const std::vector<std::tuple<std::string, std::string>> cases{
      {"checkpoint.shard,rank=1,throw", "rank 1: failpoint checkpoint.shard"},
      {"safetensors.write,rank=1,hit=4,enospc", partial + "/rank-1.safetensors: " + full},
      {"safetensors.write,rank=0,eio", partial + "/rank-0.safetensors: " + broken},
      {"safetensors.sync,rank=2,eio", "cannot sync "},
      {"checkpoint.manifest,enospc", partial + "/manifest.json: " + full},
      {"checkpoint.rename,eio", "cannot rename "}};
  const std::string directory = NewDirectory();
  JobSpec before = EveryFive();
  before.training.steps = 4;
  REQUIRE(Run(before, RunOptions{.ranks = 3, .directory = directory}).error == "");
  for (bool async : {true, false}) {
    for (const auto& [failpoint, message] : cases) {
      CAPTURE(failpoint, async);
      JobSpec spec = EveryFive();
      spec.zero.stage = 3;
      spec.checkpoint.async = async;
      spec.checkpoint.keep = 1;
      SetFailpoints(failpoint);
      const RunOutcome run = Run(spec, RunOptions{.ranks = 3, .directory = directory});
      SetFailpoints("");
      CHECK(run.failed_ranks == 3);
      CHECK(Contains(run.error, "cannot write checkpoint " + directory + "/checkpoints/step-5: rank "));
      CHECK(Contains(run.error, message));
      CHECK(run.records.size() >= 5);  // a step that was done is recorded
      std::vector<std::string> damaged;
      CHECK(NewestComplete(directory, &damaged) == directory + "/checkpoints/step-4");
      CHECK(damaged.empty());
      CHECK_FALSE(fs::exists(directory + "/checkpoints/step-5.partial"));  // its space is given back
    }
  }
  // The next job is none the worse.
  JobSpec spec = EveryFive();
  spec.checkpoint.keep = 1;
  REQUIRE(Run(spec, RunOptions{.ranks = 3, .directory = directory}).error == "");
  CHECK(ListCheckpoints(directory + "/checkpoints").size() == 1);
}

TEST_CASE("a rank that cannot write ends all ranks at the same step, before another checkpoint is due") {
  JobSpec spec = TinySpec();
  spec.checkpoint.every = 100;
  spec.training.steps = 300;
  Gates gates;
  gates.begin.Open();
  RunOptions options{.ranks = 3, .directory = NewDirectory()};
  options.decorate = GateCheckpoints(gates);
  std::vector<int64_t> last(3);
  options.on_step = [&](int rank, const StepRecord& record) {
    last[rank] = record.step;
    if (rank == 0 && record.step == 101) gates.failed.Pass();
  };
  SetFailpoints("safetensors.sync,rank=2,eio");
  const RunOutcome run = Run(spec, options);
  SetFailpoints("");
  CHECK(run.failed_ranks == 3);
  CHECK(Contains(run.error, "rank 2: cannot sync "));
  CHECK(last[0] < 200);
  CHECK(last == std::vector<int64_t>(3, last[0]));
}

TEST_CASE("a failure in training abandons the checkpoint in flight and ends") {
  Gates gates;
  const std::string directory = NewDirectory();
  RunOptions options{.ranks = 2, .directory = directory};
  options.decorate = GateCheckpoints(gates);
  options.on_step = [&](int, const StepRecord& record) {
    if (record.step == 6) gates.begin.Open();
  };
  SetFailpoints("step:7/Forward layer1.mlp*,rank=1,throw");
  const RunOutcome run = Run(EveryFive(), options);
  SetFailpoints("");
  CHECK(run.failed_ranks == 2);
  CHECK(Contains(run.error, "failpoint step:7/Forward"));
}

}  // namespace
}  // namespace ds::layout_test
