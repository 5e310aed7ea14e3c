// What is written about offloading: DeepSpeed's keys, older spellings and the job's own become one decision, and what
// cannot be is refused where it stands.
#include "runtime/job/offload.h"

#include "test/catch.h"
#include "test/unit/job/spec_helpers.h"

namespace ds {
namespace {

/// A job of `zero`, the keys of zero_optimization at line 5, and `more` keys of deepspeed.
std::string Job(const std::string& zero, const std::string& more = "", const std::string& memory = "") {
  return TinyJob("\ndeepspeed: {zero_optimization: {" + zero + "}, train_batch_size: 4" +
                 (more.empty() ? "" : ", " + more) + "}\n" + (memory.empty() ? "" : "memory: {" + memory + "}\n"));
}

constexpr OffloadTarget kNone = OffloadTarget::none, kCpu = OffloadTarget::cpu, kNvme = OffloadTarget::nvme,
                        kAuto = OffloadTarget::automatic;
using Folders = std::vector<std::string>;

TEST_CASE("without keys nothing is offloaded") {
  const JobSpec spec = Parse(TinyJob());
  CHECK(spec.zero.offload_optimizer == kNone);
  CHECK(spec.zero.offload_param == kNone);
  CHECK(spec.zero.offload_ratio == 1);
  CHECK(spec.memory == MemoryConfig{});
  CHECK_FALSE(UsesFiles(spec));
}

TEST_CASE("DeepSpeed's devices, ratio, folders and blocks reach the spec") {
  const JobSpec spec =
      Parse(Job("stage: 3, offload_optimizer: {device: nvme, nvme_path: /b, ratio: 0.25}, offload_param: {device: CPU}",
                "aio: {block_size: '262144', queue_depth: 32}"));
  CHECK(spec.zero.offload_optimizer == kNvme);
  CHECK(spec.zero.offload_param == kCpu);
  CHECK(spec.zero.offload_ratio == 0.25);
  CHECK(spec.memory.nvme_path == Folders{"/b"});
  CHECK(spec.memory.file_block_bytes == 262144);
  CHECK(spec.memory.file_queue_depth == 32);
  CHECK(UsesFiles(spec));
  for (const std::string& note : spec.notes) {
    CAPTURE(note);
    CHECK_FALSE(Has(note, "offload"));
    CHECK_FALSE(Has(note, "aio"));
  }
  for (const char* stage : {"1", "2", "3"})
    CHECK(Parse(Job(std::string("offload_optimizer: {device: cpu}, stage: ") + stage)).zero.offload_optimizer == kCpu);
  CHECK(Parse(Job("stage: 3, offload_optimizer: null, offload_param: {device: null}")).zero.offload_param == kNone);
}

TEST_CASE("older spellings stand for cpu; null and false for nothing") {
  const JobSpec spec =
      Parse(Job("stage: 3, cpu_offload: true, cpu_offload_params: true, cpu_offload_use_pin_memory: true"));
  CHECK(spec.zero.offload_optimizer == kCpu);
  CHECK(spec.zero.offload_param == kCpu);
  CHECK(HasNote(spec,
                "zero_optimization.cpu_offload: another spelling, read as "
                "deepspeed.zero_optimization.offload_optimizer.device: cpu."));
  CHECK(HasNote(spec, "offload_param.device: cpu."));
  CHECK(HasNote(spec, "cpu_offload_use_pin_memory: true: satisfied by construction: "));
  for (const char* off : {"null", "false"}) {
    const JobSpec none = Parse(Job(std::string("cpu_offload_param: ") + off + ", cpu_offload: " + off));
    CHECK(none.zero == ZeroConfig{});
  }
  CHECK(Parse(Job("stage: 1, cpu_offload: true, offload_optimizer: {device: cpu}")).zero.offload_optimizer == kCpu);
  CHECK(Has(SpecFailure(Job("cpu_offload: true, stage: 1, offload_optimizer: {device: none}")),
            "job.yaml:5:46: deepspeed.zero_optimization.cpu_offload: true: an older spelling of "
            "deepspeed.zero_optimization.offload_optimizer.device, which is none; remove it"));
  CHECK(Has(SpecFailure(Job("cpu_offload_params: false, stage: 3, offload_param: {device: cpu}")),
            "job.yaml:5:53: deepspeed.zero_optimization.cpu_offload_params: false: an older spelling of "));
}

TEST_CASE("cpu_checkpointing is memory.offload_activations: cpu, unless that is written") {
  const std::string on = "activation_checkpointing: {cpu_checkpointing: true}";
  CHECK(Parse(Job("", on)).memory.offload_activations == kCpu);
  CHECK(Parse(Job("", "activation_checkpointing: {cpu_checkpointing: false}")).memory.offload_activations == kNone);
  CHECK_FALSE(HasNote(Parse(Job("", on, "offload_activations: cpu")), "cpu_checkpointing"));
  const JobSpec both = Parse(Job("", on, "offload_activations: none"));
  CHECK(both.memory.offload_activations == kNone);
  CHECK(HasNote(both, "cpu_checkpointing: memory.offload_activations is written too, and wins."));
}

TEST_CASE("folders: relative to the job file; those of all keys together, each once, in order") {
  CHECK(Parse(Job("", "", "offload_activations: nvme, nvme_path: scratch/")).memory.nvme_path ==
        Folders{"/jobs/scratch"});
  CHECK(Parse(Job("", "", "offload_activations: nvme, nvme_path: [/b, ../a]")).memory.nvme_path == Folders{"/b", "/a"});
  const JobSpec spec = Parse(Job(
      "stage: 3, offload_param: {device: nvme, nvme_path: b/../a/}, offload_optimizer: {device: nvme, nvme_path: /c}",
      "", "nvme_path: [/d, /jobs/a]"));
  CHECK(spec.memory.nvme_path == Folders{"/d", "/jobs/a", "/c"});
  CHECK(HasNote(spec, "offload_optimizer.nvme_path: one more folder: files are striped over /d, /jobs/a, /c."));
  CHECK_FALSE(HasNote(spec, "offload_param.nvme_path"));
  const JobSpec same = Parse(
      Job("stage: 3, offload_param: {device: nvme, nvme_path: /x}, offload_optimizer: {device: nvme, nvme_path: /x}"));
  CHECK(same.memory.nvme_path == Folders{"/x"});
  CHECK_FALSE(HasNote(same, "nvme_path"));
  CHECK(Has(SpecFailure(Job("", "", "offload_activations: nvme, nvme_path: [/b, /c/../b]")),
            "job.yaml:6:48: memory.nvme_path: a list: /c/../b is there twice; name each folder once"));
}

TEST_CASE("keys that change nothing are noted, and are not in the resolved spec") {
  const JobSpec spec =
      Parse(Job("stage: 3, offload_optimizer: {nvme_path: /a, ratio: 1}, offload_param: {device: cpu, nvme_path: /b}",
                "aio: {block_size: 8192, queue_depth: 2}", "nvme_path: /c"));
  CHECK(HasNote(spec, "offload_optimizer.nvme_path: of no effect: offload_optimizer.device is none."));
  CHECK(HasNote(spec, "offload_param.nvme_path: of no effect: offload_param.device is cpu."));
  CHECK(HasNote(spec, "offload_optimizer.ratio: of no effect: offload_optimizer.device is none."));
  CHECK(HasNote(spec, "deepspeed.aio.block_size, deepspeed.aio.queue_depth: of no effect: nothing is kept in files."));
  CHECK(HasNote(spec, "memory.nvme_path: of no effect: nothing is kept in files."));
  CHECK(spec.memory.nvme_path == Folders{"/c"});
  CHECK(spec.memory.file_block_bytes == MemoryConfig().file_block_bytes);
  CHECK(Parse(Job("offload_optimizer: {ratio: 0.5}")).zero == ZeroConfig{});
  CHECK(HasNote(Parse(Job("stage: 1, offload_optimizer: {device: cpu, ratio: 0}")), "ratio: 0 is as "));
  CHECK_FALSE(Has(ToYaml(spec), "ratio:"));
  CHECK_FALSE(Has(ToYaml(spec), "aio:"));
  for (const std::string& note : Parse(ToYaml(Parse(Job("stage: 1, offload_optimizer: {device: cpu}")))).notes) {
    CAPTURE(note);
    CHECK_FALSE(Has(note, "no effect"));
  }
}

TEST_CASE("satisfied by construction, with what is offloaded and without") {
  for (const char* device : {"none", "cpu"}) {
    const JobSpec spec = Parse(
        Job(std::string("stage: 3, offload_optimizer: {device: ") + device +
                ", buffer_count: 9, pin_memory: false, pipeline_read: true, pipeline_write: false, fast_init: true},"
                " offload_param: {buffer_count: 1, buffer_size: 2e8, max_in_cpu: 0, pin_memory: true}",
            "aio: {single_submit: true, overlap_events: false, intra_op_parallelism: 4, thread_count: 2}"));
    for (const char* key :
         {"offload_optimizer.buffer_count: 9", "offload_optimizer.pin_memory: false", "pipeline_read: true",
          "pipeline_write: false", "fast_init: true", "offload_param.buffer_count: 1", "buffer_size: 2e8",
          "max_in_cpu: 0", "offload_param.pin_memory: true", "single_submit: true", "overlap_events: false",
          "intra_op_parallelism: 4", "thread_count: 2"}) {
      CAPTURE(device, key);
      CHECK(HasNote(spec, std::string(key) + ": satisfied by construction: "));
    }
  }
}

TEST_CASE("what cannot be offloaded is refused with place, key, value, reason and remedy") {
  struct Case {
    std::string job, failure;
  };
  const std::string zero = "deepspeed.zero_optimization.";
  const Case cases[] = {
      {Job("offload_param: {device: cpu}, stage: 2"),
       "job.yaml:5:57: " + zero +
           "offload_param.device: cpu: zero_optimization.stage is 2, under which every rank "
           "computes with parameters that it holds whole; write stage: 3, or remove this key"},
      {Job("stage: 1, cpu_offload_params: true"), "job.yaml:5:63: " + zero + "cpu_offload_params: true: zero_opt"},
      {Job("offload_optimizer: {device: cpu}"),
       "job.yaml:5:61: " + zero +
           "offload_optimizer.device: cpu: zero_optimization.stage is 0, under which every rank "
           "holds all optimizer state; write stage: 1, 2 or 3, or remove this key"},
      {Job("cpu_offload: true"), "job.yaml:5:46: " + zero + "cpu_offload: true: zero_optimization.stage is 0"},
      {Job("stage: 1, offload_optimizer: {device: nvme}"),
       "job.yaml:5:71: " + zero +
           "offload_optimizer.device: nvme: no folder is named for it; write one that every node "
           "has, such as /local_nvme, as nvme_path beside it, or memory.nvme_path"},
      {Job("stage: 3, offload_param: {device: nvme}, offload_optimizer: {device: cpu, nvme_path: /a}"),
       "job.yaml:5:67: " + zero + "offload_param.device: nvme: no folder is named for it"},
      {Job("", "", "offload_activations: nvme"),
       "job.yaml:6:31: memory.offload_activations: nvme: no folder is named for it; write one that every node has, "
       "such "
       "as /local_nvme, as memory.nvme_path"},
      {Job("", "", "nvme_path: ['']"), "job.yaml:6:22: memory.nvme_path: \"\": an empty path; write a folder"},
      {Job("", "", "nvme_path: \"a\\0b\""), "job.yaml:6:21: memory.nvme_path: "},
      {Job("stage: 1, offload_optimizer: {device: disk}"),
       "device: disk: not one of the choices; write one of none, cpu, nvme"},
      {Job("stage: 1, offload_optimizer: {nvme_path: ''}"),
       "offload_optimizer.nvme_path: \"\": an empty path; write a folder"},
      {Job("offload_optimizer: {ratio: 1.5}"), "offload_optimizer.ratio: 1.5: too large; write 1 or less"},
      {Job("offload_optimizer: {ratio: -1}"), "offload_optimizer.ratio: -1: too small; write 0 or more"},
      {Job("", "aio: {block_size: 5000}"),
       "deepspeed.aio.block_size: 5000: no multiple of 4096, the sector that disks move; write 4096 or 8192"},
      {Job("", "aio: {block_size: 2048}"), "aio.block_size: 2048: too small; write 4096 or more"},
      {Job("", "aio: {block_size: 2147483648}"), "aio.block_size: 2147483648: too large; write 1073741824 or less"},
      {Job("", "aio: {queue_depth: 0}"), "aio.queue_depth: 0: too small; write 1 or more"},
      {Job("", "aio: {queue_depth: 1025}"), "aio.queue_depth: 1025: too large; write 1024 or less"},
      {Job("", "aio: {use_gds: true}"),
       "aio.use_gds: true: refused: this version reads and writes files by way of host memory"},
      {Job("stage: 3, offload_optimizer: {super_offload: true}"),
       "super_offload: true: refused: the host steps a bucket when"},
      {Job("zenflow: {topk_ratio: 0.1}"), "zenflow: a map: refused: every parameter is stepped in every step"},
  };
  for (const Case& c : cases) {
    const std::string failure = SpecFailure(c.job);
    CAPTURE(c.job, failure);
    CHECK(Has(failure, c.failure));
    CHECK_FALSE(Has(failure, "\n"));
  }
  CHECK(Has(SpecFailure(Job("stage: x, offload_param: {device: cpu}")), "stage: x: "));
  CHECK_FALSE(Has(SpecFailure(Job("stage: x, offload_param: {device: cpu}")), "offload_param"));
  CHECK_FALSE(Has(SpecFailure(Job("", "", "offload_activations: nvme, nvme_path: ['']")), "no folder is named"));
}

TEST_CASE("places and the ratio may be left to the planner, where the stage leaves a choice") {
  const JobSpec spec =
      Parse(Job("stage: 3, offload_optimizer: {device: auto, ratio: auto, nvme_path: /b}, "
                "offload_param: {device: Auto}",
                "aio: {queue_depth: 32}", "offload_activations: auto, nvme_path: /a"));
  CHECK(spec.zero.offload_optimizer == kAuto);
  CHECK(spec.zero.offload_param == kAuto);
  CHECK(spec.memory.offload_activations == kAuto);
  CHECK(spec.zero.offload_ratio_auto);
  CHECK(spec.memory.nvme_path == Folders{"/a", "/b"});
  CHECK(spec.memory.file_queue_depth == 32);
  CHECK(LeavesPlacementOpen(spec));
  CHECK_FALSE(UsesFiles(spec));
  CHECK(MayUseFiles(spec));
  for (const std::string& note : spec.notes) {
    CAPTURE(note);
    CHECK_FALSE(Has(note, "no effect"));
    CHECK_FALSE(Has(note, "auto"));
  }
  CHECK(ParseJobSpec(ToYaml(spec), "again.yaml", "/", {}, 2) == spec);

  const JobSpec nowhere = Parse(Job("stage: 0, offload_optimizer: {device: auto}, offload_param: {device: auto}"));
  CHECK(nowhere.zero.offload_optimizer == kNone);
  CHECK(nowhere.zero.offload_param == kNone);
  CHECK_FALSE(LeavesPlacementOpen(nowhere));
  CHECK(HasNote(nowhere, "offload_optimizer.device: auto is none: zero_optimization.stage is 0"));
  CHECK(HasNote(nowhere, "offload_param.device: auto is none: zero_optimization.stage is 0"));
  const JobSpec second = Parse(Job("stage: 2, offload_optimizer: {device: auto}, offload_param: {device: auto}"));
  CHECK(second.zero.offload_optimizer == kAuto);
  CHECK(second.zero.offload_param == kNone);
  CHECK_FALSE(MayUseFiles(second));  // no folder is named

  const JobSpec ratio = Parse(Job("stage: 2, offload_optimizer: {device: cpu, ratio: auto}"));
  CHECK(LeavesPlacementOpen(ratio));
  CHECK(ParseJobSpec(ToYaml(ratio), "again.yaml", "/", {}, 2) == ratio);
  CHECK(HasNote(Parse(Job("stage: 2, offload_optimizer: {ratio: auto}")),
                "offload_optimizer.ratio: of no effect: offload_optimizer.device is none."));
}

TEST_CASE("equality sees where state is kept") {
  const std::string job =
      Job("stage: 3, offload_optimizer: {device: nvme}, offload_param: {device: cpu}", "", "nvme_path: /a");
  const JobSpec spec = Parse(job);
  for (const auto& [key, value] :
       std::vector<std::pair<std::string, std::string>>{{"deepspeed.zero_optimization.offload_optimizer.device", "cpu"},
                                                        {"deepspeed.zero_optimization.offload_optimizer.ratio", "0.5"},
                                                        {"deepspeed.zero_optimization.offload_optimizer.ratio", "auto"},
                                                        {"deepspeed.zero_optimization.offload_param.device", "none"},
                                                        {"deepspeed.aio.block_size", "8192"},
                                                        {"deepspeed.aio.queue_depth", "9"},
                                                        {"memory.offload_activations", "cpu"},
                                                        {"memory.nvme_path", "/b"}}) {
    CAPTURE(key);
    CHECK_FALSE(Parse(job, {{key, value}}) == spec);
  }
}

}  // namespace
}  // namespace ds
