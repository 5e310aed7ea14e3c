// ds-launch's command line, run as users run it: exit code and message.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "runtime/base/file.h"
#include "runtime/base/process.h"
#include "test/catch.h"
#include "test/plan/machines.h"

namespace ds {
namespace {

namespace fs = std::filesystem;

struct Folder {
  std::string path;
  Folder() {
    char pattern[] = "/tmp/ds-cli-XXXXXX";
    path = ::mkdtemp(pattern);
    std::ofstream(path + "/job.yaml") << "model: {preset: gpt2-tiny}\ndata: {train: t.txt}\ntraining: {steps: 3}\n"
                                         "deepspeed: {train_micro_batch_size_per_gpu: 1, optimizer: {type: AdamW}}\n";
    std::ofstream(path + "/t.txt") << std::string(10000, 'a');
    std::ofstream(path + "/hosts") << "127.0.0.1 slots=2\n127.0.0.2 slots=2\n";
    std::ofstream(path + "/far") << "127.0.0.1 slots=2\nworker-7.example slots=2\n";
    std::ofstream(path + "/gpu.yaml") << ToYaml(test::FullMachineFile());
    MachineFile old = test::FullMachineFile();
    old.device.compute_capability = "8.0";
    std::ofstream(path + "/old.yaml") << ToYaml(old);
    std::ofstream(path + "/bad.yaml") << "format: 1\nhots: here\n";
    std::ofstream(path + "/ds.json")
        << "// DeepSpeed's\n{\"train_batch_size\": 2, /* x */ \"fp16\": {\"enabled\": true}}\n";
    fs::create_directory(path + "/nothing.d");
    for (const char* name : {"/nothing.d/README", "/junk.tok", "/junk.txt.gz", "/junk.idx", "/junk.bin"})
      std::ofstream(path + name) << "no data of any kind";
    ::mkfifo((path + "/fifo").c_str(), 0600);
    std::ofstream(path + "/bad") << "127.0.0.1 slots=8x\n";
  }
  ~Folder() { fs::remove_all(path); }
};

struct Result {
  int code;
  std::string output;
};

Result Launch(const Folder& folder, std::vector<std::string> arguments, const char* standard_output = nullptr) {
  SpawnOptions options;
  options.argv = std::move(arguments);
  options.argv.insert(options.argv.begin(), std::string(DS_BIN_DIR) + "/ds-launch");
  options.environment = InheritedEnvironment();
  options.working_directory = folder.path;
  int out = ::open((folder.path + "/out").c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  options.stdout_fd = options.stderr_fd = out;
  int other = standard_output ? ::open(standard_output, O_WRONLY | O_CLOEXEC) : -1;
  if (other >= 0) options.stdout_fd = other;
  pid_t pid = Spawn(options);
  ::close(out);
  if (other >= 0) ::close(other);
  int status = 0;
  ::waitpid(pid, &status, 0);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), ReadFile(folder.path + "/out")};
}

struct Case {
  std::vector<std::string> arguments;
  int code;
  std::string says;
};

}  // namespace

TEST_CASE("Wrong command lines: 2, and what is wrong") {
  const std::vector<Case> cases = {
      {{}, 2, "what shall run?"},
      {{"job.yaml", "--", "true"}, 2, "one of them"},
      {{"--"}, 2, "no program after"},
      {{"--", "--num-gpus", "2", "true"},
       2,
       "-- --num-gpus: no program's name begins with `-`; options of ds-launch go"},
      {{"ls"}, 2, "ls: there is no such job file; a program goes behind `--`: ds-launch [OPTIONS] -- ls ARGS..."},
      {{"/bin/true"},
       2,
       "/bin/true is a program; a program goes behind `--`: ds-launch [OPTIONS] -- /bin/true ARGS..."},
      {{"job.yaml", "--resume", "yes"}, 2, "cannot resume from yes: it does not exist; --resume takes never, auto"},
      {{"job.yaml", "--set", "TRAINING.steps=3"}, 2, "--set: TRAINING: unknown key; the nearest is training"},
      {{"job.yaml", "--set", "model.heads=5"},
       2,
       "--set: model.heads: 5: model.hidden, which is 64, is no multiple of 5; write a divisor of it"},
      {{"job.yaml", "--set", "model.hidden=65"}, 2, "--set: model.hidden: 65: 65 is no multiple of model.heads"},
      {{"ds.json"}, 2, "ds.json: this is a DeepSpeed configuration, not a job file"},
      {{"job.yaml", "--set", "data.train=nothing.d"}, 2, "nothing.d holds no data: no *.txt"},
      {{"job.yaml", "--set", "data.train=junk.tok"}, 2, "junk.tok does not begin as token files do"},
      {{"job.yaml", "--set", "data.train=junk.txt.gz"}, 2, "its name says that it is compressed"},
      {{"job.yaml", "--set", "data.train=junk.idx"}, 2, "junk.idx does not begin as Megatron-LM's .idx files do"},
      {{"job.yaml", "--set", "data.train=data/kjv/train.tok"}, 2, "`scripts/quickstart.sh --prepare` makes the data"},
      {{"job.yaml", "--hostfil", "hosts"}, 2, "unknown option --hostfil; the nearest is --hostfile"},
      {{"job.yaml", "second.yaml"}, 2, "`second.yaml` is one argument too many"},
      {{"absent.yaml"}, 2, "absent.yaml"},
      {{"job.yaml", "--hostfile", "absent"}, 2, "absent"},
      {{"job.yaml", "--hostfile", "bad"}, 2, "bad:1:"},
      {{"job.yaml", "--hostfile", "hosts", "--include", "nobody"}, 2, "nobody"},
      {{"job.yaml", "--hostfile", "hosts", "-i", "127.0.0.1:9"}, 2, "9"},
      {{"job.yaml", "--hostfile", "hosts", "-i", "127.0.0.1", "-e", "127.0.0.2"}, 2, "exclude"},
      {{"job.yaml", "--hostfile", "hosts", "--num_nodes", "3"}, 2, "3"},
      {{"job.yaml", "--hostfile", "hosts", "--num-gpus=3"}, 2, "3"},
      {{"job.yaml", "--num-gpus", "0"}, 2, "--num-gpus"},
      {{"job.yaml", "--num-gpus", "2x"}, 2, "2x"},
      {{"job.yaml", "--hostfile", "far", "--bootstrap", "local"}, 2, "worker-7.example"},
      {{"job.yaml", "--interface", "10.0.0.0/33"}, 2, "neither an address nor a network"},
      {{"job.yaml", "--agent", "../ds-agent"}, 2, "neither an absolute path nor a name"},
      {{"job.yaml", "--ssh-port", "65536"}, 2, "--ssh-port: expected a number from 1 to 65535, got `65536`"},
      {{"job.yaml", "--ssh-port", "-1"}, 2, "--ssh-port: expected a number from 1 to 65535, got `-1`"},
      {{"--hostfile", "far", "--ssh-config", "/dev/zero", "--", "true"},
       2,
       "/dev/zero is a device, not a regular file"},
      {{"--hostfile", "far", "--ssh-config", ".", "--dry-run", "--", "true"}, 2, " is a folder, not a regular file"},
      {{"--hostfile", "far", "--ssh-config", "fifo", "--", "true"}, 2, "/fifo is a named pipe, not a regular file"},
      {{"--hostfile", "far", "--ssh-config", "absent", "--", "true"}, 2, "/absent cannot be read: No such file"},
      {{"fifo"}, 2, "job file: fifo is a named pipe"},
      {{"/dev/zero"}, 2, "job file: /dev/zero is a device"},
      {{"job.yaml", "--hostfile", "fifo"}, 2, "hostfile: fifo is a named pipe"},
      {{"job.yaml", "--set", "deepspeed=fifo"}, 2, "fifo is a named pipe"},
      {{"job.yaml", "--set", "data.train=fifo"}, 2, "/fifo is neither a regular file nor a folder"},
      {{"--set", "launch.lease_seconds=5", "--set", "launch.suspect_seconds=6", "--", "true"}, 2, "at most that"},
      {{"--set", "launch.lease_seconds=1", "--", "true"}, 2, "launch.lease_seconds=1: too small"},
      {{"--set", "launch.env.A=1", "--", "true"}, 2, "a program's variables are given by --export A=VALUE"},
      {{"--", "/"}, 2, "-- /: a run is named after its program"},
      {{"--", "a\nb"}, 2, "-- a?b: a run is named after its program"},
      {{"--set", "job.name=\"a\\nb\"", "--", "true"}, 2, "not a folder's name"},
      {{"--output", "o\np", "--", "true"}, 2, "/o?p: its path has a control character"},
      {{"job.yaml", "--ssh-port", "22"}, 2, "which uses no ssh"},
      {{"job.yaml", "--bootstrap", "pigeon"}, 2, "pigeon"},
      {{"job.yaml", "--set", "training.steps"}, 2, "KEY=VALUE"},
      {{"job.yaml", "--set", "training.stepz=3"}, 2, "training.steps"},
      {{"job.yaml", "--export", "DS_NO_SUCH_VARIABLE"}, 2, "DS_NO_SUCH_VARIABLE"},
      {{"job.yaml", "--export", "=x"}, 2, "--export"},
      {{"job.yaml", "--resume", "absent"}, 2, "absent"},
      {{"job.yaml", "--output", "/proc/here"}, 2, "/proc/here"},
      {{"job.yaml", "--export", "CUDA_VISIBLE_DEVICES=0"}, 2, "slots of a node choose its workers' GPUs"},
      {{"job.yaml", "--export", "DS_RUN_ID=x"}, 2, "ds-launch sets it"},
      {{"--export", "LOCAL_RANK=1", "--", "true"}, 2, "--export: LOCAL_RANK: ds-launch sets it for each worker"},
      {{"--export", "MASTER_PORT=29500", "--", "true"}, 2, "(--master-port N chooses the port)"},
      {{"--", ""}, 2, "empty name"},
      {{"train.py", "--deepspeed_config", "ds.json"}, 2, "ds-launch [OPTIONS] -- train.py ARGS..."},
      {{"--num_gpus=2", "--master_port", "65536", "--", "true"}, 2, "--master-port: expected a number from 1 to 65535"},
      {{"job.yaml", "--master-port", "29500"}, 2, "--master-port: it is about programs"},
      {{"--master-addr=\xff", "--", "true"}, 2, "--master-addr \xef\xbf\xbd: a name or an address is wanted"},
      {{"--master-addr=a b", "--", "true"}, 2, "--master-addr a b: a name or an address is wanted"},
      {{"--master-addr=-x", "--", "true"}, 2, "--master-addr -x: it begins with `-`"},
      {{"job.yaml", "--hostfile", "/dev/zero"}, 2, "hostfile: /dev/zero is a device"},
      {{"job.yaml", "--set", "launch.join_seconds=1e300"}, 2, "launch.join_seconds: 1e300: too large"},
      {{"job.yaml", "--module"}, 2, "--module: it is about programs"},
      {{"--module", "--no_python", "--", "x"}, 2, "exclude each other"},
      {{"--launcher", "pdsh", "--", "true"}, 2, "write --bootstrap"},
      {{"--launcher_args=-v", "--", "true"}, 2, "--launcher-args: nothing is handed on"},
      {{"--node_rank", "1", "--", "true"}, 2, "--node-rank: ds-launch starts the agents of all nodes"},
      {{"--rdzv-backend=c10d", "--", "true"}, 2, "without a rendezvous"},
      {{"--max-restarts=3", "--", "true"}, 2, "launch.restarts=N"},
      {{"--standalone", "--", "true"}, 2, "this machine"},
      {{"--tee", "2", "--", "true"}, 2, "--tee: 2: no such rank; the job has ranks 0 to 1"},
      {{"job.yaml", "--tee=", "--dry-run"}, 2, "--tee="},
      {{"job.yaml", "--log_ranks", "0-"}, 2, "--log-ranks: `0-`: a rank is missing"},
      {{"job.yaml", "--set", "launch.log_rotate=4"}, 2, "launch.log_rotate: 4: too small"},
      {{"job.yaml", "--plan-for", "2x2"}, 2, "--dry-run"},
      {{"job.yaml", "--output=", "--dry-run"}, 2, "--output="},  // not: --output --dry-run
      {{"job.yaml", "--dry-run", "--plan-for", "65536x65536"}, 2, "1048576 ranks"},
      {{"job.yaml", "--dry-run", "--plan-for", "2by2"}, 2, "NxM"},
      {{"job.yaml", "--dry-run", "--set", "data.train=no/t.txt"}, 2, "/no/t.txt does not exist; paths are relative"},
      {{"job.yaml", "--set", "data.validation=[t.txt, v.tok]"}, 2, "--set: data.validation: a list: "},
      {{"job.yaml", "--set", "data.train=m.idx"}, 2, "/m.idx does not exist; Megatron-LM's data are"},
      {{"job.yaml", "--dry-run", "--plan_for", "2x2", "--machine", "m"}, 2, "cannot read m"},
      {{"job.yaml", "--machine", ""}, 2, "--machine: an empty name"},
      {{"job.yaml", "--machine", "bad.yaml"}, 2, "bad.yaml:2:1: hots: unknown key; the nearest is host"},
      {{"job.yaml", "--dry-run", "--plan-for", "2x2", "--machine", "gpu.yaml", "--set", "training.device=cpu"},
       2,
       "it is of GPUs (NVIDIA H200), and training.device is cpu"},
      {{"job.yaml", "--dry-run", "--plan-for", "1x2", "--machine", "old.yaml", "--set", "training.fp8=true", "--set",
        "deepspeed.bf16.enabled=true"},
       2,
       "has no 8-bit products, which need compute capability 8.9"},
      {{"--machine", "gpu.yaml", "--", "true"}, 2, "a program has no plan"},
      {{"--resume", "auto", "--", "true"}, 2, "--resume"},
      {{"--set", "training.steps=3", "--", "true"}, 2, "training.steps"},
      {{"--set", "launch.grace_seconds=soon", "--", "true"}, 2, "launch.grace_seconds"},
      {{std::string(DS_SOURCE_DIR) + "/test/data/deepspeed/configs/bloom.json"},
       2,
       "this is a DeepSpeed configuration"},
  };
  Folder folder;
  for (const Case& c : cases) {
    Result result = Launch(folder, c.arguments);
    std::string line;
    for (const std::string& argument : c.arguments) line += argument + " ";
    INFO("ds-launch " << line << "\n" << result.output);
    CHECK(result.code == c.code);
    CHECK(result.output.find(c.says) != std::string::npos);
  }
  CHECK(!fs::exists(folder.path + "/runs"));  // nothing is begun for a command line that is wrong
}

TEST_CASE("Help, version and dry runs: 0, nothing started or written") {
  const std::string configs = std::string(DS_SOURCE_DIR) + "/test/data/deepspeed/configs";
  const std::vector<Case> cases = {
      {{"--help"}, 0, "--num-gpus"},
      {{"--version"}, 0, "protocol"},
      {{"job.yaml", "--hostfile", "hosts", "--dry_run"}, 0, "     3      1     1  127.0.0.2"},
      {{"job.yaml", "--dry-run", "--num-gpus", "3"}, 0, "3 ranks on 1 node\n"},
      {{"job.yaml", "--dry-run", "--plan-for", "2x4"}, 0, "8 ranks on 2 nodes"},
      {{"job.yaml", "--dry-run", "--plan-for", "2x4", "--machine", "gpu.yaml"},
       0,
       "gpu.yaml: NVIDIA H200, measured on"},
      {{"job.yaml", "--dry-run", "--plan-for", "2x4", "--machine", "gpu.yaml", "--set", "training.fp8=true", "--set",
        "deepspeed.bf16.enabled=true"},
       0,
       "8-bit products"},
      {{"job.yaml", "--dry-run", "--machine", "gpu.yaml", "--set", "training.device=cpu"},
       0,
       "the job computes on CPUs: nothing of it is used"},
      {{"job.yaml", "--dry-run", "--plan-for", "2x4", "--set", "data.train=not/here.tok"}, 0, "8 ranks on 2 nodes"},
      {{"job.yaml", "--dry-run", "--set", "training.steps=5", "--set", "training.steps=7"}, 0, "steps: 7"},
      {{"job.yaml", "--dry-run", "--set", "data.train=[t.txt, job.yaml]"}, 0, "/job.yaml"},
      {{"job.yaml", "--dry-run", "--set", "training.device=gpu"}, 0, "The plan was not checked against a GPU's memory"},
      {{"job.yaml", "--dry-run", "--export", "SECRET=hidden-value"}, 0, "SECRET"},
      {{"job.yaml", "--dry-run", "--set", "deepspeed=" + configs + "/hf_trainer_zero3.json", "--set",
        "deepspeed.train_batch_size=4"},
       0,
       "stage3_param_persistence_threshold: auto is 640, 10 x hidden"},
      {{"job.yaml", "--dry-run", "--set", "deepspeed=" + configs + "/legacy_zero3.json"},
       0,
       "prefetch_bucket_size: another spelling, read as deepspeed.zero_optimization.stage3_prefetch_bucket_size"},
      {{"--dry-run", "--", "prog", "two words"}, 0, "prog 'two words'"},
      {{"--dry-run", "--nproc-per-node", "3", "--", "prog"}, 0, "3 ranks on 1 node"},
      {{"--dry-run", "--num_accelerators=3", "--nnodes=1", "--", "prog"}, 0, "3 ranks on 1 node"},
      {{"--dry-run", "--", "./train.py", "-x"}, 0, "python3 -u ./train.py -x\n"},
      {{"--dry-run", "--module", "--", "pack.age"}, 0, "Job pack.age: 2 ranks"},
      {{"--dry-run", "-m", "--", "pack.age"}, 0, "python3 -u -m pack.age\n"},
      {{"--dry-run", "--no_python", "--", "./train.py"}, 0, "  ./train.py\n"},
      {{"--dry-run", "--export", "A=hidden-value", "--export", "B=", "--", "prog"},
       0,
       "--export: A, B\n  set for each"},
  };
  Folder folder;
  for (const Case& c : cases) {
    Result result = Launch(folder, c.arguments);
    INFO(c.says << "\n" << result.output);
    CHECK(result.code == c.code);
    CHECK(result.output.find(c.says) != std::string::npos);
    CHECK(result.output.find("hidden-value") == std::string::npos);
  }
  CHECK(Launch(folder, {"job.yaml", "--dry-run"}, "/dev/full").code == 1);  // nobody saw it
  CHECK(!fs::exists(folder.path + "/runs"));
}

TEST_CASE("More variables than a process can be started with: an error before anything starts") {
  const Folder folder;
  std::ofstream job(folder.path + "/large.yaml");
  job << ReadFile(folder.path + "/job.yaml") << "launch:\n  env:\n";
  for (int i = 0; i < 70; ++i) job << "    V" << i << ": " << std::string(100000, 'x') << "\n";
  job.close();
  const Result result = Launch(folder, {"large.yaml"});
  CHECK(result.code == 2);
  CHECK(result.output.find("Linux starts no process with more than") != std::string::npos);
  CHECK(result.output.find("hand values over in a file") != std::string::npos);
}

TEST_CASE("A lease alone takes launch.suspect_seconds with it; one rank is `1 rank`; a job file may be a pipe") {
  const Folder folder;
  Result result = Launch(folder, {"job.yaml", "--dry-run", "--num-gpus", "1", "--set", "launch.lease_seconds=10"});
  CHECK(result.code == 0);
  CHECK(result.output.find("suspect_seconds: 10") != std::string::npos);
  CHECK(result.output.find(": 1 rank on 1 node\n") != std::string::npos);
  CHECK(result.output.find(" 1 ranks") == std::string::npos);
  SpawnOptions options;
  options.argv = {"/bin/bash", "-c",
                  "exec \"$0\" <(cat job.yaml) --set data.train=$PWD/t.txt --set job.name=p --dry-run",
                  std::string(DS_BIN_DIR) + "/ds-launch"};
  options.environment = InheritedEnvironment();
  options.working_directory = folder.path;
  int status = 0;
  ::waitpid(Spawn(options), &status, 0);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

}  // namespace ds
