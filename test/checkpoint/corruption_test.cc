// Promise: whatever happens to a checkpoint's bytes, the file and the reason are named, nothing of it is loaded, and
// `--resume auto` goes on from the newest one that is whole; ds-convert verify and ds-launch say the same.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

#include "runtime/base/error.h"
#include "runtime/checkpoint/checkpoint.h"
#include "test/checkpoint/damage.h"
#include "test/unit/data/temp_folder.h"

namespace ds::checkpoint_test {
namespace {

namespace fs = std::filesystem;
using test::Contains;
using test::MessageOf;
using test::TempFolder;

/// Reads everything through a CheckpointReader; what it threw, "" where nothing was wrong.
std::string ReadEverything(const fs::path& folder) {
  try {
    const CheckpointReader reader(folder);
    for (const auto& [name, shape] : reader.parameters())
      for (StateKind state : {StateKind::master, StateKind::moment1, StateKind::moment2}) {
        std::vector<float> values(static_cast<size_t>(shape.numel()));
        reader.Read(name, state, 0, Tensor::Of(values.data(), {shape.numel()}));
      }
    CheckTensors(folder, ReadManifest(folder));
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

struct Ran {
  int code = -1;
  std::string output;
};

/// A program of the build tree, both of its streams.
Ran RunProgram(const std::string& command) {
  Ran ran;
  FILE* pipe = ::popen((std::string(DS_BIN_DIR) + "/" + command + " 2>&1").c_str(), "r");
  REQUIRE(pipe != nullptr);
  char block[4096];
  for (size_t n; (n = std::fread(block, 1, sizeof block, pipe)) > 0;) ran.output.append(block, n);
  const int status = ::pclose(pipe);
  ran.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return ran;
}

/// A run that is whole, and copies of it to be damaged.
class Runs {
 public:
  Runs() { WriteRun(whole()); }
  fs::path whole() const { return folder_ / "whole"; }
  fs::path root() const { return whole() / "checkpoints"; }
  fs::path Copy() {
    fs::remove_all(folder_ / "run");
    fs::copy(whole(), folder_ / "run", fs::copy_options::recursive | fs::copy_options::copy_symlinks);
    return folder_ / "run";
  }

 private:
  TempFolder folder_;
};

/// The message names what it must, and says why.
void CheckNames(const std::string& message, const fs::path& root, const Damage& damage) {
  CAPTURE(message);
  CHECK(Contains(message, (root / damage.file).string()));
  CHECK(Contains(message, damage.reason));
}

/// What is left is usable, and what was passed over is named.
void CheckFallsBack(const fs::path& run, const Damage& damage) {
  std::vector<std::string> damaged;
  CHECK(NewestComplete(run, &damaged) == run / "checkpoints/step-10");
  REQUIRE(damaged.size() == 1);
  CheckNames(damaged[0], run / "checkpoints", damage);
}

void CheckRefused(const fs::path& path, const fs::path& root, const Damage& damage) {
  const std::string message = MessageOf<UsageError>([&] { ResolveResume(path); });
  CHECK(Contains(message, "cannot resume from " + path.string() + ": "));
  CheckNames(message, root, damage);
}

void CheckVerifyRefuses(const std::string& path, const fs::path& root, const Damage& damage) {
  const Ran ran = RunProgram("ds-convert verify '" + path + "'");
  CHECK(ran.code == 1);
  CheckNames(ran.output, root, damage);
}

}  // namespace

TEST_CASE("each class of bytes of each kind of file, damaged, is named; nothing is loaded; the older one is used") {
  Runs runs;
  std::vector<Damage> damages = DamagesOfShards(runs.root());
  for (auto& more : {DamagesOfManifests(runs.root()), DamagesOfFolders()})
    damages.insert(damages.end(), more.begin(), more.end());
  CHECK(damages.size() > 150);
  for (size_t i = 0; i < damages.size(); ++i) {
    const Damage& damage = damages[i];
    CAPTURE(damage.name);
    const fs::path run = runs.Copy(), root = run / "checkpoints", step = root / "step-20";
    damage.apply(root);
    CheckNames(MessageOf<RuntimeError>([&] { VerifyCheckpoint(step); }), root, damage);
    CheckNames(ReadEverything(step), root, damage);
    CheckFallsBack(run, damage);
    CheckRefused(step, root, damage);
    CheckRefused(run, root, damage);
    CHECK(ResolveResume(root / "step-10") == fs::canonical(root / "step-10"));
    // Programs take milliseconds to start: each sees a part of the table.
    if (i % 8 == 0) CheckVerifyRefuses(step, fs::canonical(root), damage);
    if (i % 8 == 4) CheckVerifyRefuses(run, fs::canonical(root), damage);
  }
}

TEST_CASE("a newest checkpoint that is gone as a whole is missed") {
  Runs runs;
  for (const Damage& damage : DamagesOfLatest()) {
    CAPTURE(damage.name);
    const fs::path run = runs.Copy(), root = run / "checkpoints";
    damage.apply(root);
    CheckFallsBack(run, damage);
    CheckRefused(run, root, damage);
    CheckRefused(root, root, damage);
    CheckVerifyRefuses(run, fs::canonical(root), damage);
    CHECK(RunProgram("ds-convert inspect '" + run.string() + "'").code == 1);
    CHECK(ResolveResume(root / "step-10") == fs::canonical(root / "step-10"));
  }
  // What `latest` says of an older time does not matter, nor does its absence: readers go by the folders.
  const fs::path run = runs.Copy(), root = run / "checkpoints";
  std::vector<std::string> damaged;
  fs::remove(root / "latest");
  CHECK(NewestComplete(run, &damaged) == root / "step-20");
  fs::create_symlink("step-10", root / "latest");
  CHECK(NewestComplete(run, &damaged) == root / "step-20");
  CHECK(damaged.empty());
}

TEST_CASE("every byte of every file, turned over alone, is detected") {
  Runs runs;
  const fs::path step = runs.root() / "step-20";
  for (const char* name : {"manifest.json", "rank-0.safetensors", "rank-1.safetensors"}) {
    const fs::path path = step / name;
    const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    REQUIRE(fd >= 0);
    const size_t size = fs::file_size(path);
    for (size_t at = 0; at < size; ++at) {
      char byte = 0;
      REQUIRE(::pread(fd, &byte, 1, static_cast<off_t>(at)) == 1);
      const char turned = static_cast<char>(byte ^ (1 << (at % 8)));
      REQUIRE(::pwrite(fd, &turned, 1, static_cast<off_t>(at)) == 1);
      std::string message;
      try {
        VerifyCheckpoint(step);
      } catch (const RuntimeError& error) {
        message = error.what();
      }
      if (!Contains(message, path.string())) FAIL_CHECK(name << ", byte " << at << ": " << message);
      REQUIRE(::pwrite(fd, &byte, 1, static_cast<off_t>(at)) == 1);
    }
    ::close(fd);
  }
  CHECK(ReadEverything(step) == "");
}

TEST_CASE("a shard that is not what a correct manifest says of it is named") {
  Runs runs;
  const fs::path step = runs.root() / "step-20", shard = step / "rank-1.safetensors";
  const Manifest manifest = ReadManifest(step);
  const std::string whole = ReadFile(shard);
  auto error = [&](const std::string& from, const std::string& to) {
    std::string bytes = whole;
    const size_t at = bytes.find(from);
    REQUIRE(at != std::string::npos);
    test::Overwrite(shard, bytes.replace(at, from.size(), to));
    return MessageOf<RuntimeError>([&] { CheckTensors(step, manifest); });
  };
  for (const auto& [from, to, reason] : std::vector<std::tuple<std::string, std::string, std::string>>{
           {"layer.weight/master@12", "layer.weight/master@13", "holds no tensor layer.weight/master@12"},
           {"\"F32\",\"shape\":[12]", "\"F64\",\"shape\":[06]", "rank-1.safetensors"},
           {"\"F32\",\"shape\":[12]", "\"I32\",\"shape\":[12]", "is not the 12 F32 elements"},
           {"\"shape\":[12]", "\"shape\":[13]", "its dtype and shape need 52"}}) {
    CAPTURE(from, to);
    const std::string message = error(from, to);
    CHECK(Contains(message, shard.string()));
    CHECK(Contains(message, reason));
  }
}

TEST_CASE("files that may not be read are named") {
  Runs runs;
  const fs::path step = runs.root() / "step-20";
  ::chmod(runs.whole().parent_path().c_str(), 0755);
  for (const char* name : {"manifest.json", "rank-1.safetensors"}) {
    const fs::path file = step / name;
    ::chmod(file.c_str(), 0);
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    const pid_t child = ::fork();
    if (child == 0) {  // root may read everything: nobody may not
      std::string message = "read";
      if (::getuid() != 0 || ::seteuid(65534) == 0) {
        try {
          VerifyCheckpoint(step);
        } catch (const std::exception& error) {
          message = error.what();
        }
      }
      [[maybe_unused]] const ssize_t n = ::write(ends[1], message.data(), message.size());
      ::_exit(0);
    }
    ::close(ends[1]);
    char message[4096] = {};
    REQUIRE(::read(ends[0], message, sizeof message - 1) > 0);
    ::close(ends[0]);
    ::waitpid(child, nullptr, 0);
    ::chmod(file.c_str(), 0644);
    CAPTURE(std::string(message));
    CHECK(Contains(message, file.string()));
    CHECK(Contains(message, "Permission denied"));
  }
}

TEST_CASE("ds-convert verify and inspect: a checkpoint, a run, a folder of checkpoints, a job, and what is none") {
  Runs runs;
  const std::string run = fs::canonical(runs.whole()), root = run + "/checkpoints";
  fs::create_symlink("whole", fs::path(run).parent_path() / "latest");  // as in a job's folder: the newest run
  for (const std::string& path : {root + "/step-20", root + "/latest"}) {
    const Ran verified = RunProgram("ds-convert verify '" + path + "'");
    CHECK(verified.code == 0);
    CHECK(Contains(verified.output, root + "/step-20: whole (step 20, 2 files, "));
  }
  for (const std::string& path : {run, root, fs::path(run).parent_path().string()}) {
    const Ran verified = RunProgram("ds-convert verify '" + path + "'");
    CHECK(verified.code == 0);
    CHECK(Contains(verified.output, root + "/step-20: whole"));
    CHECK(Contains(verified.output, root + "/step-10: whole"));
    const Ran inspected = RunProgram("ds-convert inspect '" + path + "'");
    CHECK(inspected.code == 0);
    CHECK(Contains(inspected.output, "  step-10 "));
    CHECK(Contains(inspected.output, "checkpoint " + root + "/step-20\n"));
    CHECK(Contains(inspected.output, "parameters   2, 28 elements; of each: master, moment1, moment2"));
  }
  for (const char* command : {"verify", "inspect"}) {
    const TempFolder empty;
    fs::create_directory(empty / "checkpoints");
    const Ran none = RunProgram("ds-convert " + std::string(command) + " '" + empty.path().string() + "'");
    CHECK(none.code == 2);
    CHECK(Contains(none.output, "there is no checkpoint"));
    fs::create_symlink("step-7", empty / "checkpoints/gone");
    const Ran gone =
        RunProgram("ds-convert " + std::string(command) + " '" + (empty / "checkpoints/gone").string() + "'");
    CHECK(gone.code == 2);
    CHECK(Contains(gone.output, "points to step-7, which is not there"));
    CHECK(RunProgram("ds-convert " + std::string(command) + " '" + (empty / "nowhere").string() + "'").code == 2);
  }
  // A damaged one does not hide the others.
  test::Overwrite(root + "/step-20/rank-0.safetensors", "x");
  const Ran damaged = RunProgram("ds-convert verify '" + run + "'");
  CHECK(damaged.code == 1);
  CHECK(Contains(damaged.output, "step-20 is damaged: " + root + "/step-20/rank-0.safetensors has 1 bytes"));
  CHECK(Contains(damaged.output, root + "/step-10: whole"));
  CHECK(Contains(damaged.output, "error: 1 damaged or missing; 2 checkpoints were found"));
}

}  // namespace ds::checkpoint_test
