#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/agreement.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <numeric>
#include <thread>

#include "runtime/base/error.h"
#include "runtime/base/failpoint.h"
#include "runtime/checkpoint/export.h"
#include "runtime/checkpoint/safetensors.h"
#include "test/unit/data/temp_folder.h"

namespace ds {
namespace {

using test::Contains;
using test::MessageOf;
using test::TempFolder;
namespace fs = std::filesystem;

struct Param {
  std::string name;
  Shape shape;
};
const std::vector<Param> kParams{{"embedding.weight", {7, 5}}, {"layers.0.weight", {13}}, {"norm", {1}}};
const std::vector<StateKind> kStates{StateKind::master, StateKind::moment1, StateKind::moment2};

/// The value of one element of the model at a step: all tests write and expect this.
float Element(size_t param, StateKind state, int64_t i, int64_t step) {
  return static_cast<float>(param * 1000 + static_cast<size_t>(state) * 100) + static_cast<float>(i) +
         static_cast<float>(step) / 64;
}

std::vector<float> Whole(size_t param, StateKind state, int64_t step) {
  std::vector<float> values(static_cast<size_t>(kParams[param].shape.numel()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = Element(param, state, static_cast<int64_t>(i), step);
  return values;
}

TrainingState State(int64_t step) {
  TrainingState state;
  state.step = step;
  state.tokens = step * 128;
  state.final_loss = 2.0 / static_cast<double>(step);
  state.seed = 77;
  state.job_yaml = "job: {name: x}\n";
  return state;
}

/// Writes `step` with `ranks` ranks as threads, each parameter cut into one piece a rank (as even as can be). Returns
/// what each rank's call threw; empty: nothing.
std::vector<std::string> Write(const fs::path& root, int64_t step, int ranks, int64_t keep = 0) {
  ThreadWorld world(ranks, std::chrono::seconds(60));
  std::vector<std::string> errors(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      SetFailpointScope(rank, 1);
      std::unique_ptr<Communicator> control = world.Make(rank, "control");
      std::vector<std::vector<float>> memory;
      std::vector<StateSlice> slices;
      for (size_t p = 0; p < kParams.size(); ++p)
        for (StateKind state : kStates) {
          const int64_t numel = kParams[p].shape.numel(), begin = numel * rank / ranks;
          const int64_t count = numel * (rank + 1) / ranks - begin;
          if (count == 0) continue;
          std::vector<float> whole = Whole(p, state, step);
          memory.emplace_back(whole.begin() + begin, whole.begin() + begin + count);
          slices.push_back(
              {kParams[p].name, state, kParams[p].shape, begin, Tensor::Of(memory.back().data(), {count})});
        }
      try {
        const std::string folder = WriteCheckpoint(root, State(step), slices, keep, *control);
        if (folder != root / ("step-" + std::to_string(step))) errors[rank] = "wrong folder " + folder;
      } catch (const std::exception& error) {
        errors[rank] = error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

void WriteWell(const fs::path& root, int64_t step, int ranks, int64_t keep = 0) {
  for (const std::string& error : Write(root, step, ranks, keep)) REQUIRE(error == "");
}

/// Every state of every parameter, read in `pieces` pieces, is what `step` wrote.
void CheckHolds(const fs::path& folder, int64_t step, int pieces = 3) {
  CheckpointReader reader(folder);
  CHECK(reader.state().step == step);
  CHECK(reader.state().final_loss == 2.0 / static_cast<double>(step));
  CHECK(reader.parameters().size() == kParams.size());
  for (size_t p = 0; p < kParams.size(); ++p)
    for (StateKind state : kStates) {
      CHECK(reader.parameters().at(kParams[p].name) == kParams[p].shape);
      REQUIRE(reader.Has(kParams[p].name, state));
      const std::vector<float> expected = Whole(p, state, step);
      std::vector<float> values(expected.size(), -1e30f);
      const int64_t numel = static_cast<int64_t>(values.size());
      for (int piece = 0; piece < pieces; ++piece) {
        const int64_t begin = numel * piece / pieces, end = numel * (piece + 1) / pieces;
        reader.Read(kParams[p].name, state, begin, Tensor::Of(values.data() + begin, {end - begin}));
      }
      CHECK(values == expected);
    }
}

std::set<std::string> Entries(const fs::path& root) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(root)) names.insert(entry.path().filename().string());
  return names;
}

/// Runs `work` in a child process, which a failpoint kills.
void KilledChild(const std::string& failpoint, const std::function<void()>& work) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    SetFailpoints(failpoint + ",kill");
    work();
    ::_exit(7);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFSIGNALED(status));
  REQUIRE(WTERMSIG(status) == SIGKILL);
}

}  // namespace

TEST_CASE("what any number of ranks wrote, any slicing reads") {
  const int ranks = GENERATE(1, 2, 3, 4, 16);
  CAPTURE(ranks);
  TempFolder folder;
  WriteWell(folder / "checkpoints", 5, ranks);
  const fs::path checkpoint = folder / "checkpoints/step-5";
  for (int pieces : {1, 2, 5}) CheckHolds(checkpoint, 5, pieces);
  CHECK(fs::read_symlink(folder / "checkpoints/latest") == "step-5");
  CHECK(Entries(folder / "checkpoints") == std::set<std::string>{"latest", "step-5"});
  CHECK(VerifyCheckpoint(checkpoint).ranks == ranks);

  CheckpointReader reader(checkpoint);
  float value;
  CHECK_THROWS_AS(reader.Read("no such", StateKind::master, 0, Tensor::Of(&value, {1})), RuntimeError);
  CHECK_THROWS_AS(reader.Read("norm", StateKind::master, 1, Tensor::Of(&value, {1})), RuntimeError);
  CHECK_THROWS_AS(reader.Read("norm", StateKind::master, -1, Tensor::Of(&value, {1})), RuntimeError);
  CHECK(!reader.Has("norm", StateKind::gradient));
}

TEST_CASE("tensors carry the parameter's name and, when whole, its shape") {
  TempFolder folder;
  WriteWell(folder.path(), 1, 1);
  SafetensorsFile file(folder / "step-1/rank-0.safetensors");
  CHECK(file.At("embedding.weight/master").shape == std::vector<int64_t>{7, 5});
  CHECK(file.At("layers.0.weight/moment2").shape == std::vector<int64_t>{13});
}

TEST_CASE("older checkpoints beyond `keep` go, newest stay; damaged ones are not counted and stay") {
  TempFolder folder;
  WriteWell(folder.path(), 10, 2);
  WriteWell(folder.path(), 20, 2);
  WriteWell(folder.path(), 30, 2);
  fs::remove(folder / "step-30/rank-1.safetensors");
  WriteWell(folder.path(), 40, 2, 2);
  CHECK(Entries(folder.path()) == std::set<std::string>{"latest", "step-20", "step-30", "step-40"});
  WriteWell(folder.path(), 50, 2, 1);
  CHECK(Entries(folder.path()) == std::set<std::string>{"latest", "step-30", "step-50"});
  CHECK(fs::read_symlink(folder / "latest") == "step-50");
}

TEST_CASE("leftovers of crashed writes go with the next checkpoint") {
  TempFolder folder;
  folder.Write("step-3.partial/rank-0.safetensors", "half");
  folder.Write("step-9.partial/rank-0.safetensors", "half");
  folder.Write("step-9.replaced.partial/x", "half");
  folder.Write("notes.txt", "mine");
  WriteWell(folder.path(), 9, 1);
  CHECK(Entries(folder.path()) == std::set<std::string>{"latest", "notes.txt", "step-9"});
}

TEST_CASE("a step written again replaces what was there") {
  TempFolder folder;
  WriteWell(folder.path(), 5, 4);
  test::Overwrite(folder / "step-5/rank-1.safetensors", "damaged");
  WriteWell(folder.path(), 5, 2);
  CheckHolds(folder / "step-5", 5);
  CHECK(VerifyCheckpoint(folder / "step-5").ranks == 2);
  CHECK(Entries(folder.path()) == std::set<std::string>{"latest", "step-5"});
}

TEST_CASE("the rank that fails is the cause, its peers are victims") {
  ThreadWorld world(3, std::chrono::seconds(60));
  std::vector<std::string> thrown(3);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank)
    threads.emplace_back([&, rank] {
      std::unique_ptr<Communicator> control = world.Make(rank, "control");
      try {
        TogetherOrThrow(*control, "common work", [&] {
          if (rank > 0) throw RuntimeError("no space");
        });
      } catch (const CommunicatorAborted& error) {
        thrown[rank] = std::string("victim: ") + error.what();
      } catch (const RuntimeError& error) {
        thrown[rank] = std::string("cause: ") + error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(thrown[0] == "victim: common work: rank 1: no space");
  CHECK(thrown[1] == "cause: common work: rank 1: no space");
  CHECK(thrown[2] == "victim: common work: rank 1: no space");
}

TEST_CASE("a rank that fails makes all ranks throw its reason, and earlier checkpoints stay") {
  const std::string place = GENERATE("checkpoint.shard,rank=2", "checkpoint.manifest", "checkpoint.rename");
  CAPTURE(place);
  TempFolder folder;
  WriteWell(folder.path(), 1, 4, 1);
  SetFailpoints(place + ",throw");
  const std::vector<std::string> errors = Write(folder.path(), 2, 4, 1);
  SetFailpoints("");
  const std::string rank = Contains(place, "rank=2") ? "rank 2: " : "rank 0: ";
  for (const std::string& error : errors) {
    CHECK(error == errors[0]);
    CHECK(Contains(error, (folder / "step-2").string() + ": " + rank));
    CHECK(Contains(error, place.substr(0, place.find(','))));
  }
  CHECK(Entries(folder.path()) == std::set<std::string>{"latest", "step-1"});
  CheckHolds(folder / "latest", 1);
  WriteWell(folder.path(), 2, 4, 1);
  CheckHolds(folder / "latest", 2);
}

TEST_CASE("a folder that cannot be written is named by every rank") {
  TempFolder folder;
  folder.Write("root", "a file, not a folder");
  for (const std::string& error : Write(folder / "root", 2, 3)) CHECK(Contains(error, (folder / "root").string()));
}

TEST_CASE("slices that do not cover a parameter are never committed") {
  TempFolder folder;
  std::vector<float> values(4);
  auto control = SingleRankFactory()("control");
  auto write = [&](std::vector<StateSlice> slices) {
    return MessageOf<RuntimeError>([&] { WriteCheckpoint(folder.path(), State(1), slices, 0, *control); });
  };
  const Tensor data = Tensor::Of(values.data(), {4});
  CHECK(Contains(write({{"w", StateKind::master, {5}, 0, data}}),
                 "elements [4, 5) of master of parameter w are missing"));
  CHECK(
      Contains(write({{"w", StateKind::master, {4}, 0, data}, {"w", StateKind::master, {4}, 0, data}}), "held twice"));
  CHECK(Contains(write({{"w", StateKind::master, {4}, 1, data}}), "not within [4]"));
  CHECK(Contains(write({{"w", StateKind::moment1, {4}, 0, data}}), "has no values"));
  CHECK(Contains(write({{"w", StateKind::working, {4}, 0, data}}), "no place in a checkpoint"));
  CHECK(Entries(folder.path()).empty());
}

TEST_CASE("killed at any point of a write, the earlier checkpoint is whole and is found; the next write heals") {
  const std::string place = GENERATE("checkpoint.shard", "checkpoint.manifest", "checkpoint.rename");
  CAPTURE(place);
  TempFolder folder;
  const fs::path root = folder / "checkpoints";
  WriteWell(root, 10, 1, 1);
  KilledChild(place, [&] { Write(root, 20, 1, 1); });
  CHECK(Entries(root) == std::set<std::string>{"latest", "step-10", "step-20.partial"});
  std::vector<std::string> damaged;
  CHECK(NewestComplete(folder.path(), &damaged) == root / "step-10");
  CHECK(damaged.empty());
  CHECK(fs::read_symlink(root / "latest") == "step-10");
  CheckHolds(root / "step-10", 10);
  WriteWell(root, 20, 1, 1);
  CHECK(Entries(root) == std::set<std::string>{"latest", "step-20"});
  CheckHolds(root / "latest", 20);
}

TEST_CASE("old checkpoints go only after the new one is whole and has its name") {
  struct Case {
    const char* place;
    std::set<std::string> left;
    const char* latest;
  };
  for (const Case& killed : {Case{"safetensors.sync", {"latest", "step-10", "step-20.partial"}, "step-10"},
                             Case{"checkpoint.rename", {"latest", "step-10", "step-20.partial"}, "step-10"},
                             Case{"checkpoint.latest", {"latest", "step-10", "step-20"}, "step-10"},
                             Case{"checkpoint.remove", {"latest", "step-10", "step-20"}, "step-20"},
                             Case{"checkpoint.remove.files", {"latest", "step-10.partial", "step-20"}, "step-20"}}) {
    CAPTURE(killed.place);
    TempFolder folder;
    const fs::path root = folder / "checkpoints";
    WriteWell(root, 10, 1, 1);
    KilledChild(killed.place, [&] { Write(root, 20, 1, 1); });
    CHECK(Entries(root) == killed.left);
    CHECK(fs::read_symlink(root / "latest") == killed.latest);
    const int64_t newest = killed.left.count("step-20") ? 20 : 10;
    std::vector<std::string> damaged;
    CHECK(NewestComplete(folder.path(), &damaged) == root / ("step-" + std::to_string(newest)));
    CHECK(damaged.empty());
    CheckHolds(root / ("step-" + std::to_string(newest)), newest);
    WriteWell(root, 30, 1, 1);
    CHECK(Entries(root) == std::set<std::string>{"latest", "step-30"});
  }
}

TEST_CASE("every way in which a checkpoint can be damaged names the file") {
  TempFolder folder;
  WriteWell(folder / "checkpoints", 5, 2);
  const fs::path checkpoint = folder / "checkpoints/step-5", shard = checkpoint / "rank-1.safetensors";
  const std::string whole = ReadFile(shard), manifest = ReadFile(checkpoint / "manifest.json");
  auto error = [&] { return MessageOf<RuntimeError>([&] { VerifyCheckpoint(checkpoint); }); };

  for (size_t at = 0; at < whole.size(); at += at < 64 ? 1 : 29) {  // each byte costs a file written
    std::string bytes = whole;
    bytes[at] = static_cast<char>(bytes[at] ^ 16);
    test::Overwrite(shard, bytes);
    const std::string message = error();
    if (!Contains(message, shard.string() + " is damaged")) FAIL_CHECK("byte " << at << ": " << message);
  }
  for (size_t size : {size_t{0}, size_t{7}, size_t{100}, whole.size() - 1}) {
    test::Overwrite(shard, whole.substr(0, size));
    CHECK(Contains(error(), shard.string() + " has " + std::to_string(size) + " bytes"));
    CHECK(Contains(error(), "cut short"));
  }
  test::Overwrite(shard, whole + "x");
  CHECK(Contains(error(), "rank-1.safetensors has"));
  fs::remove(shard);
  CHECK(Contains(error(), shard.string() + " is missing"));
  test::Overwrite(shard, ReadFile(checkpoint / "rank-0.safetensors"));
  CHECK(Contains(error(), "rank-1.safetensors"));
  test::Overwrite(shard, whole);
  VerifyCheckpoint(checkpoint);

  test::Overwrite(checkpoint / "rank-2.safetensors", whole);
  CHECK(Contains(error(), "rank-2.safetensors is not part of this checkpoint"));
  fs::remove(checkpoint / "rank-2.safetensors");
  fs::rename(checkpoint, folder / "checkpoints/step-6");
  CHECK(Contains(MessageOf<RuntimeError>([&] { VerifyCheckpoint(folder / "checkpoints/step-6"); }),
                 "its folder says step 6"));
  fs::rename(folder / "checkpoints/step-6", checkpoint);
  test::Overwrite(checkpoint / "manifest.json", manifest.substr(0, manifest.size() / 2));
  CHECK(Contains(error(), "manifest.json: the manifest is cut short"));
  fs::remove(checkpoint / "manifest.json");
  CHECK(Contains(error(), "manifest.json is missing"));
}

TEST_CASE("a reader refuses a damaged file when it needs it") {
  TempFolder folder;
  WriteWell(folder.path(), 5, 2);
  std::string bytes = ReadFile(folder / "step-5/rank-1.safetensors");
  bytes[bytes.size() - 1] ^= 1;
  test::Overwrite(folder / "step-5/rank-1.safetensors", bytes);
  CheckpointReader reader(folder / "step-5");
  std::vector<float> values(13);
  reader.Read("layers.0.weight", StateKind::master, 0, Tensor::Of(values.data(), {6}));
  CHECK(Contains(MessageOf<RuntimeError>(
                     [&] { reader.Read("layers.0.weight", StateKind::master, 0, Tensor::Of(values.data(), {13})); }),
                 "rank-1.safetensors is damaged"));
}

TEST_CASE("resuming takes the newest whole checkpoint of all runs, and says what it passed over") {
  TempFolder folder;
  CHECK(!NewestComplete(folder / "missing", nullptr));
  CHECK(!NewestComplete(folder.path(), nullptr));
  WriteWell(folder / "run-b/checkpoints", 10, 1);
  WriteWell(folder / "run-b/checkpoints", 20, 1);
  WriteWell(folder / "run-a/checkpoints", 15, 1);  // the newest by time
  fs::create_directory_symlink("run-a", folder / "latest");
  std::vector<std::string> damaged;
  CHECK(NewestComplete(folder.path(), &damaged) == folder / "run-a/checkpoints/step-15");
  CHECK(damaged.empty());
  CHECK(NewestComplete(folder / "run-b", &damaged) == folder / "run-b/checkpoints/step-20");
  CHECK(ListCheckpoints(folder / "run-b/checkpoints").size() == 2);

  test::Overwrite(folder / "run-a/checkpoints/step-15/rank-0.safetensors", "x");
  CHECK(NewestComplete(folder.path(), &damaged) == folder / "run-b/checkpoints/step-20");
  REQUIRE(damaged.size() == 1);
  CHECK(Contains(damaged[0], "run-a/checkpoints/step-15/rank-0.safetensors"));

  CHECK(ResolveResume(folder / "run-b") == fs::canonical(folder / "run-b/checkpoints/step-20"));
  CHECK(ResolveResume(folder / "run-b/checkpoints") == fs::canonical(folder / "run-b/checkpoints/step-20"));
  CHECK(ResolveResume(folder / "run-b/checkpoints/latest") == fs::canonical(folder / "run-b/checkpoints/step-20"));
  CHECK(ResolveResume(folder / "run-b/checkpoints/step-10") == fs::canonical(folder / "run-b/checkpoints/step-10"));
  auto error = [&](const fs::path& path) { return MessageOf<UsageError>([&] { ResolveResume(path); }); };
  CHECK(Contains(error(folder / "run-a"), "rank-0.safetensors has 1 bytes"));
  CHECK(Contains(error(folder / "latest"), "cannot resume from"));
  CHECK(Contains(error(folder / "nowhere"), "does not exist"));
  CHECK(Contains(error(folder.path()), "there is no checkpoint"));
  CHECK(Contains(error(folder / "run-b/checkpoints/step-10/manifest.json"), "not a folder"));
}

TEST_CASE("an export holds whole parameters by name") {
  TempFolder folder;
  WriteWell(folder.path(), 5, 3);
  const fs::path output = folder / "model.safetensors";
  CHECK(ExportParameters(folder / "step-5", output, DType::f32, false) == 35 + 13 + 1);
  SafetensorsFile file(output);
  REQUIRE(file.entries().size() == 3);
  const auto& entry = file.At("embedding.weight");
  CHECK(entry.shape == std::vector<int64_t>{7, 5});
  const std::vector<float> expected = Whole(0, StateKind::master, 5);
  CHECK(std::equal(expected.begin(), expected.end(), reinterpret_cast<const float*>(entry.data)));

  CHECK(Contains(MessageOf<UsageError>([&] { ExportParameters(folder / "step-5", output, DType::bf16, false); }),
                 "--force"));
  ExportParameters(folder / "step-5", output, DType::bf16, true);
  SafetensorsFile rounded(output);
  CHECK(rounded.At("norm").dtype == "BF16");
  uint16_t bits;
  std::memcpy(&bits, rounded.At("norm").data, 2);
  CHECK(bits == bf16(Element(2, StateKind::master, 0, 5)).bits);
  CHECK_THROWS_AS(ExportParameters(folder / "step-5", output, DType::f64, true), UsageError);

  for (const char* name : {"rank-0.safetensors", "model.safetensors"})  // its own file, or one that it does not know
    CHECK(Contains(
        MessageOf<UsageError>([&] { ExportParameters(folder / "step-5", folder / "step-5" / name, DType::f32, true); }),
        "is inside the checkpoint"));
  CHECK_NOTHROW(CheckpointReader(folder / "step-5").Has("norm", StateKind::master));
}

}  // namespace ds
