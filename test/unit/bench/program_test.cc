// Promise: ds-bench writes a machine file that is whole or not at all, of this machine, with what it measured.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <sstream>
#include <thread>

#include "kernels/optimizer.h"
#include "runtime/base/file.h"
#include "runtime/base/process.h"
#include "runtime/plan/machine_file.h"
#include "test/catch.h"
#include "test/unit/data/temp_folder.h"

namespace ds {
namespace {

using test::Contains;
using test::TempFolder;
namespace fs = std::filesystem;

struct Ran {
  int code = 0;
  std::string output;  ///< both streams
};

/// Runs ds-bench in the folder; `input`: the file that its standard input is.
Ran Bench(const TempFolder& folder, const std::string& arguments, const std::string& input = "/dev/null") {
  const fs::path log = fs::temp_directory_path() / ("ds-bench-log-" + std::to_string(::getpid()));
  const std::string command = "cd '" + folder.path().string() + "' && " + std::string(DS_BIN_DIR) + "/ds-bench " +
                              arguments + " > " + log.string() + " 2>&1 < " + input;
  const int status = std::system(command.c_str());
  Ran ran{WIFEXITED(status) ? WEXITSTATUS(status) : -1, ReadFile(log)};
  fs::remove(log);
  return ran;
}

/// Whether process `pid` is ds-bench and takes the signal itself: it blocks it, and reads it from a descriptor.
bool Takes(pid_t pid, int signal) {
  const std::string process = "/proc/" + std::to_string(pid);
  std::error_code gone;
  if (fs::read_symlink(process + "/exe", gone).filename() != "ds-bench") return false;
  const std::string status = ReadFile(process + "/status");
  const size_t at = status.find("SigBlk:");
  return at != std::string::npos && (std::stoull(status.substr(at + 7), nullptr, 16) >> (signal - 1) & 1) != 0;
}

/// A file of this machine, by measuring little of it.
MachineFile ThisMachine(const TempFolder& folder, const std::string& name) {
  const Ran ran = Bench(folder, "memory --device cpu --seconds 0.1 --output " + name);
  INFO(ran.output);
  REQUIRE(ran.code == 0);
  return ReadMachineFile(folder / name);
}

}  // namespace

TEST_CASE("ds-bench all measures everything, and the file reads back", "[slow]") {
  const TempFolder folder;
  const Ran ran = Bench(folder, "all --device cpu --seconds 24 --size 1MiB --model gpt2-tiny --state 64MiB");
  INFO(ran.output);
  REQUIRE(ran.code == 0);
  CHECK(folder.Names() == std::set<std::string>{"machine.yaml"});
  const MachineFile file = ReadMachineFile(folder / "machine.yaml");
  CHECK(file.device.kind == DeviceKind::cpu);
  CHECK(file.device.threads >= 1);
  CHECK(!file.host.empty());
  CHECK(file.memory_bytes_per_second > 1e6);
  CHECK(file.matmul.size() >= 10);
  for (const MatMulRate& rate : file.matmul) CHECK(rate.flops_per_second > 1e6);
  CHECK(file.attention.size() == 2);
  CHECK(file.matmul_choices.empty());
  if (StepExceedsCaches((int64_t{4} << 20) * 14)) {
    CHECK(file.host_optimizer.bytes_per_second > 1e6);
    CHECK(file.host_optimizer.threads == file.device.threads);
  }
  CHECK(file.collectives.size() == 3);
  for (const CollectiveRate& rate : file.collectives) CHECK(rate.points.size() >= 2);
  REQUIRE(file.disks.size() == 1);
  CHECK(file.disks[0].path == fs::canonical(folder.path()));
  CHECK(file.disks[0].write_bytes_per_second > 0);
  CHECK(file.disks[0].read_bytes_per_second > 0);
  CHECK(file.disks[0].block_bytes >= 256 << 10);
  CHECK(file.disks[0].queue_depth >= 1);
  CHECK_FALSE(file.libraries.library_bytes);
  for (const char* part : {"layer_norm forward", "gelu backward", "cross_entropy", "bias gradient", "sum of squares",
                           "adamw step", "adamw, bf16 gradient and copy", "matmul qkv forward", "attention backward",
                           "all_reduce", "send_receive", "write and sync", "memory copy"})
    CHECK(Contains(ran.output, part));
  CHECK(Contains(ran.output, "written: machine.yaml"));
  CHECK(!Contains(ran.output, "\x1b"));  // no terminal: no progress
}

TEST_CASE("a part measured anew leaves the others as they are") {
  const TempFolder folder;
  MachineFile file = ThisMachine(folder, "m.yaml");
  file.matmul.push_back({DType::f32, 3, 5, 7, false, true, 12345});
  file.disks.push_back({"/elsewhere", 1e9, 2e9, true, 0, 0, 0});
  file.collectives.push_back({CollectiveKind::broadcast, 2, {1e-6, 1e9}, {}});
  test::Overwrite(folder / "m.yaml", ToYaml(file));
  const Ran ran = Bench(folder, "storage --device cpu --seconds 30 --size 256KiB --output m.yaml");  // io's other name
  INFO(ran.output);
  REQUIRE(ran.code == 0);
  const MachineFile after = ReadMachineFile(folder / "m.yaml");
  CHECK(after.matmul == file.matmul);
  CHECK(after.collectives == file.collectives);
  CHECK(after.memory_bytes_per_second == file.memory_bytes_per_second);
  REQUIRE(after.disks.size() == 2);
  CHECK(after.disks[0] == file.disks[0]);
  CHECK(after.disks[1].path == fs::canonical(folder.path()));
}

TEST_CASE("ds-bench io measures each folder, then all as one space, and keeps blocks and depth of each") {
  const TempFolder folder;
  fs::create_directories(folder / "a");
  fs::create_directories(folder / "b");
  const Ran ran = Bench(folder,
                        "io --device cpu --seconds 60 --size 1MiB --path a --path b --block 64KiB --block 128KiB "
                        "--queue 2 --backend threads --output m.yaml");
  INFO(ran.output);
  REQUIRE(ran.code == 0);
  const MachineFile file = ReadMachineFile(folder / "m.yaml");
  REQUIRE(file.disks.size() == 2);
  for (size_t i = 0; i < 2; ++i) {
    const DiskRate& disk = file.disks[i];
    CHECK(disk.path == fs::canonical(folder / (i == 0 ? "a" : "b")));
    CHECK((disk.block_bytes == 64 << 10 || disk.block_bytes == 128 << 10));
    CHECK(disk.queue_depth == 2);
    CHECK(disk.write_bytes_per_second > 0);
    CHECK(disk.read_bytes_per_second > 0);
    CHECK(disk.mixed_bytes_per_second > 0);
  }
  size_t sections = 0;
  for (size_t at = 0; (at = ran.output.find("io: 1.0 MiB in ", at)) != std::string::npos; ++at) ++sections;
  CHECK(sections == 3);
  CHECK(Contains(ran.output, "by threads"));
  CHECK(Contains(ran.output, "to take: blocks of"));
  CHECK(folder.Names() == std::set<std::string>{"a", "b", "m.yaml"});
}

TEST_CASE("kernels for which no time is left keep what the file has of them") {
  const TempFolder folder;
  REQUIRE(Bench(folder, "memory --device cpu --threads 1 --seconds 0.1 --output m.yaml").code == 0);
  MachineFile file = ReadMachineFile(folder / "m.yaml");
  file.matmul.push_back({DType::f32, 3, 5, 7, false, true, 12345});
  file.attention.push_back({DType::f32, 3, 8, false, true, 54321});
  const std::string text = ToYaml(file);
  test::Overwrite(folder / "m.yaml", text);
  const Ran none = Bench(folder, "kernels --device cpu --threads 1 --seconds 0.001 --output m.yaml");
  INFO(none.output);
  CHECK(none.code == 1);
  CHECK(Contains(none.output, "nothing was measured"));
  CHECK(ReadFile(folder / "m.yaml") == text);

  // However busy the machine is, some time is enough for the first product (3 GFLOP) and not for the head's (134
  // GFLOP).
  size_t measured = 1;
  for (double seconds = 1; measured == 1 && seconds <= 64; seconds *= 2) {
    test::Overwrite(folder / "m.yaml", text);
    const Ran some = Bench(folder, "kernels --device cpu --threads 1 --model llama-1b --seconds " +
                                       std::to_string(seconds) + " --output m.yaml");
    INFO(some.output);
    REQUIRE(Contains(some.output, "left out"));
    const MachineFile after = ReadMachineFile(folder / "m.yaml");
    CHECK(std::count(after.matmul.begin(), after.matmul.end(), file.matmul.back()) == 1);
    CHECK(std::count(after.attention.begin(), after.attention.end(), file.attention.back()) == 1);
    measured = after.matmul.size();
  }
  CHECK(measured > 1);
}

TEST_CASE("another machine's file, and what is no machine file, are replaced by force alone") {
  const TempFolder folder;
  MachineFile file = ThisMachine(folder, "m.yaml");
  const auto refused = [&](const std::string& text, const std::string& reason) {
    test::Overwrite(folder / "m.yaml", text);
    for (const char* command : {"memory", "all --size 256KiB"}) {
      const Ran ran = Bench(folder, std::string(command) + " --device cpu --seconds 0.1 --output m.yaml");
      INFO(ran.output);
      CHECK(ran.code == 2);
      CHECK(Contains(ran.output, reason));
      CHECK(Contains(ran.output, "--force"));
      CHECK(ReadFile(folder / "m.yaml") == text);
    }
    const Ran ran = Bench(folder, "memory --device cpu --seconds 0.1 --output m.yaml --force");
    INFO(ran.output);
    CHECK(ran.code == 0);
    CHECK(ReadMachineFile(folder / "m.yaml").memory_bytes_per_second > 0);
  };
  file.host = "elsewhere";
  refused(ToYaml(file), "of host elsewhere");
  refused("job: {name: mine}\n", "no machine file");
  refused("", "no machine file");
}

TEST_CASE("threads of a part are those of the rest") {
  const TempFolder folder;
  MachineFile file = ThisMachine(folder, "m.yaml");
  file.device.threads = 77;
  test::Overwrite(folder / "m.yaml", ToYaml(file));
  const Ran ran = Bench(folder, "memory --device cpu --seconds 0.1 --output m.yaml");
  CHECK(ran.code == 2);
  CHECK(Contains(ran.output, "--threads 77"));
}

TEST_CASE("what cannot be measured or written is refused before anything is") {
  const TempFolder folder;
  folder.Write("file", "text");
  folder.Write("gpu.yaml",
               "model: {preset: gpt2-tiny}\ndata: {train: file}\ntraining: {steps: 1, device: gpu}\n"
               "deepspeed: {train_batch_size: 2, optimizer: {type: AdamW, params: {lr: 1e-3}}}\n");
  for (const auto& [arguments, reason] :
       std::vector<std::pair<std::string, std::string>>{{"", "a command is wanted"},
                                                        {"kernel", "kernel"},
                                                        {"all --no-such-flag", "no-such-flag"},
                                                        {"all --seconds 0", "--seconds"},
                                                        {"all --seconds nan", "--seconds"},
                                                        {"memory --threads -1", "--threads"},
                                                        {"memory --device tpu", "--device"},
                                                        {"memory --device cpu --gpu 1", "--gpu 1"},
                                                        {"all --device cpu --path none", "none"},
                                                        {"all --device cpu --path file", "Not a directory"},
                                                        {"all --device cpu --size 900TiB", "4 times as much"},
                                                        {"io --size 4KiB", "256KiB"},
                                                        {"io --size big", "--size"},
                                                        {"io --block 5000", "aio.block_size"},
                                                        {"io --block x", "--block"},
                                                        {"io --queue 0", "aio.queue_depth"},
                                                        {"io --backend aio", "--backend"},
                                                        {"io --path . --path ./", "named twice"},
                                                        {"io --device cpu --output none/m.yaml", "no folder"},
                                                        {"all --device cpu --ranks 1 --size 1MiB", "--ranks"},
                                                        {"collectives --device cpu --ranks 1000", "--ranks"},
                                                        {"kernels --model gpt3", "no such preset"},
                                                        {"kernels none.yaml", "none.yaml"},
                                                        {"kernels --device cpu gpu.yaml", "training.device: gpu"},
                                                        {"memory --output ''", "needs the name of a file"},
                                                        {"kernels none.yaml --model gpt2-tiny", "write one of them"},
                                                        {"kernels --set a=b", "name its file"},
                                                        {"optimizer --state 12", "write from 1KiB to 16TiB"},
                                                        {"optimizer --state big", "--state"},
                                                        {"all --device cpu --size 1MiB --state 12", "--state 12"},
                                                        {"optimizer --turns", "wants --threads"},
                                                        {"rank", "starts its ranks itself"},
                                                        {"rank 0 1 cpu x", "not a number"}}) {
    INFO(arguments);
    const Ran ran = Bench(folder, arguments);
    INFO(ran.output);
    CHECK(ran.code == 2);
    CHECK(Contains(ran.output, reason));
    CHECK(folder.Names() == std::set<std::string>{"file", "gpu.yaml"});
  }
}

TEST_CASE("the optimizer is measured by size, and beyond the caches its rate goes into the file") {
  const TempFolder folder;
  Ran ran = Bench(folder, "optimizer --device cpu --threads 2 --seconds 0.1 --state 1KiB 40KiB --output m.yaml");
  INFO(ran.output);
  REQUIRE(ran.code == 0);
  for (const char* part : {"adamw, fp32", "adamw, bf16 copy", "adamw, bf16 gradient and copy", "1KiB of state",
                           "40KiB of state", "rounds"})
    CHECK(Contains(ran.output, part));
  CHECK(ReadMachineFile(folder / "m.yaml").host_optimizer == HostOptimizerRate{});
  ran = Bench(folder, "optimizer --device cpu --threads 2 --seconds 0.1 --state 800MiB --output m.yaml");
  INFO(ran.output);
  REQUIRE(ran.code == 0);
  const HostOptimizerRate rate = ReadMachineFile(folder / "m.yaml").host_optimizer;
  if (!Contains(ran.output, "left out")) CHECK((rate.threads == 2 && rate.bytes_per_second > 1e6));
}

TEST_CASE("the optimizer runs what standard input asks for, in turns") {
  const TempFolder folder;
  folder.Write("turns", "f32 step 2\nbf16-copy stream 1\nbf16-gradient step 3\n");
  Ran ran = Bench(folder, "optimizer --threads 1 --state 64KiB --turns", "turns");
  INFO(ran.output);
  REQUIRE(ran.code == 0);
  std::istringstream lines(ran.output);
  int count = 0;
  for (double seconds = 0; lines >> seconds; ++count) CHECK((seconds > 0 && seconds < 100));
  CHECK(count == 3);
  for (const char* turn : {"f64 step 1", "f32 walk 1", "f32 step 0", "f32 step"}) {
    folder.Write("turns", turn);
    ran = Bench(folder, "optimizer --threads 1 --state 64KiB --turns", "turns");
    CHECK(ran.code == 2);
    CHECK(Contains(ran.output, "is no turn"));
  }
}

TEST_CASE("the help of every command teaches its options") {
  const TempFolder folder;
  for (const char* command : {"all", "kernels", "memory", "optimizer", "collectives", "io", "storage"}) {
    const Ran ran = Bench(folder, std::string(command) + " --help");
    CHECK(ran.code == 0);
    for (const char* option : {"--seconds", "--output", "--device", "--force"}) CHECK(Contains(ran.output, option));
  }
  CHECK(Contains(Bench(folder, "--help").output, "ds-bench all"));
}

TEST_CASE("a signal ends ds-bench and its ranks at once, and the file that was there stays") {
  const TempFolder folder;
  ThisMachine(folder, "m.yaml");
  const std::string before = ReadFile(folder / "m.yaml");
  for (const auto& [command, signal] :
       std::vector<std::pair<std::string, int>>{{"kernels", SIGINT}, {"collectives", SIGTERM}, {"io", SIGINT}}) {
    INFO(command);
    SpawnOptions options;
    options.argv = {
        std::string(DS_BIN_DIR) + "/ds-bench", command, "--device", "cpu", "--seconds", "60", "--output", "m.yaml"};
    options.environment = InheritedEnvironment();
    options.working_directory = folder.path();
    const pid_t pid = Spawn(options);
    const size_t ranks = command == "collectives" ? 2 : 0;
    std::vector<ProcessId> processes = Descendants();
    for (int i = 0; i < 3000 && !(Takes(pid, signal) && processes.size() > ranks); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      processes = Descendants();
    }
    REQUIRE(Takes(pid, signal));
    REQUIRE(processes.size() > ranks);  // ds-bench itself is one
    ::kill(pid, signal);
    int status = 0;
    CHECK(::waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 128 + signal);
    for (const ProcessId& process : processes)
      for (int i = 0; i < 500 && IdentifyProcess(process.pid) == process; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    for (const ProcessId& process : processes) CHECK(!(IdentifyProcess(process.pid) == process));
    CHECK(folder.Names() == std::set<std::string>{"m.yaml"});
    CHECK(ReadFile(folder / "m.yaml") == before);
  }
}

}  // namespace ds
