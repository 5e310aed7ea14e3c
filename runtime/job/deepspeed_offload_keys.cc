// DeepSpeed's offloading: ZeRO-Offload and ZeRO-Infinity, and how files are read and written.
#include "runtime/job/deepspeed_missing.h"
#include "runtime/job/deepspeed_table.h"
#include "runtime/job/deepspeed_values.h"
#include "runtime/job/names.h"
#include "runtime/job/read_value.h"

namespace ds::deepspeed_table {
namespace {

using enum DeepSpeedType;
using Part = OffloadDraft DeepSpeedDraft::*;

constexpr const char* kPinned = "host memory that a GPU moves to or from is pinned";
constexpr const char* kSized = "the plan sizes what is on its way between tiers";
constexpr const char* kBeside = "the plan reads and writes files beside the work";
constexpr const char* kUnderWay = "a request is cut into blocks, of which aio.queue_depth are under way at once";

DeepSpeedKey WithAuto(DeepSpeedKey key) {
  key.reads_auto = true;
  return key;
}

DeepSpeedKey Device(const char* path, Part part, const char* meaning) {
  return WithAuto(Honoured(path, text, "none", meaning, [=](DeepSpeedDraft& draft, const Value& value) {
    (draft.*part).device = ReadName(value, kOffloadNames);
  }));
}

DeepSpeedKey NvmePath(const char* path, Part part) {
  return Honoured(path, text, "null", "a folder for files, beside `memory.nvme_path` where that is written too",
                  [=](DeepSpeedDraft& draft, const Value& value) {
                    if (AsString(value).empty()) throw ValueError(value, "an empty path; write a folder");
                    if (value.text.find('\0') != std::string::npos) throw ValueError(value, "no path; write a folder");
                    (draft.*part).nvme_path = value.text;
                  });
}

DeepSpeedKey Legacy(const char* path, Part part, const char* meaning) {
  return Honoured(path, boolean, "null", meaning, [=](DeepSpeedDraft& draft, const Value& value) {
    AsBool(value);
    (draft.*part).legacy = value;
  });
}

void AddParam(Keys& keys) {
  const Keys rows = {
      Device("zero_optimization.offload_param.device", &DeepSpeedDraft::offload_param,
             "where ranks keep their shards of parameters: none, cpu, nvme, or auto, the fastest place where they fit; "
             "needs "
             "stage 3"),
      NvmePath("zero_optimization.offload_param.nvme_path", &DeepSpeedDraft::offload_param),
      Always("zero_optimization.offload_param.buffer_count", integer, "5", "any", kSized),
      Always("zero_optimization.offload_param.buffer_size", integer, "1e8", "any", kSized),
      Always("zero_optimization.offload_param.max_in_cpu", integer, "1e9", "any", kSized),
      Always("zero_optimization.offload_param.pin_memory", boolean, "true", "true|false", kPinned),
  };
  keys.insert(keys.end(), rows.begin(), rows.end());
}

void AddOptimizer(Keys& keys) {
  const std::string optimizer = "zero_optimization.offload_optimizer";
  const Keys rows = {
      Device(
          "zero_optimization.offload_optimizer.device", &DeepSpeedDraft::offload_optimizer,
          "where master, moments and gradient shards are kept: none, cpu, nvme, or auto, the fastest place where they "
          "fit; below the device the host steps them; needs stage 1, 2 or 3"),
      NvmePath("zero_optimization.offload_optimizer.nvme_path", &DeepSpeedDraft::offload_optimizer),
      WithAuto(Honoured("zero_optimization.offload_optimizer.ratio", number, "1.0",
                        "the share of parameters, counted from the model's end, whose optimizer state is kept there; "
                        "the rest stays on the device; auto: the share of the shortest step",
                        [](DeepSpeedDraft& draft, const Value& value) {
                          draft.offload_ratio_auto = IsAuto(value);
                          if (!draft.offload_ratio_auto) draft.offload_ratio = ReadNumber(value, 0, 1);
                        })),
      Always("zero_optimization.offload_optimizer.buffer_count", integer, "4", "any", kSized),
      Always("zero_optimization.offload_optimizer.pin_memory", boolean, "true", "true|false", kPinned),
      Always("zero_optimization.offload_optimizer.pipeline_read", boolean, "false", "true|false", kBeside),
      Always("zero_optimization.offload_optimizer.pipeline_write", boolean, "false", "true|false", kBeside),
      Always("zero_optimization.offload_optimizer.fast_init", boolean, "false", "true|false",
             "the first state is written to its place once, in small pieces"),
      Refused("zero_optimization.offload_optimizer.super_offload", boolean, "false", deepspeed_missing::kSuperOffload),
  };
  keys.insert(keys.end(), rows.begin(), rows.end());
  AddIdle(keys, optimizer, optimizer + ".super_offload is false", {{"cpuadam_cores_perc", number, "0.8"}});
  AddIdle(keys, "zero_optimization", "there is no Muon in this version",
          {{"save_muon_momentum_buffer_in_memory", boolean, "false"}});
}

void AddLegacy(Keys& keys) {
  const Keys rows = {
      Legacy("zero_optimization.cpu_offload", &DeepSpeedDraft::offload_optimizer,
             "true: offload_optimizer.device is cpu"),
      Legacy("zero_optimization.cpu_offload_param", &DeepSpeedDraft::offload_param,
             "true: offload_param.device is cpu"),
      Always("zero_optimization.cpu_offload_use_pin_memory", boolean, "null", "true|false", kPinned),
  };
  keys.insert(keys.end(), rows.begin(), rows.end());
}

void AddZenFlow(Keys& keys) {
  keys.push_back(Refused("zero_optimization.zenflow", map, "null", deepspeed_missing::kZenFlow));
  AddIdle(keys, "zero_optimization.zenflow", "zero_optimization.zenflow is refused",
          {{"topk_ratio", number, "0.1"},
           {"select_strategy", text, "auto"},
           {"select_interval", any, "auto"},
           {"update_interval", any, "auto"},
           {"overlap_step", boolean, "false"},
           {"offload", boolean, "false"},
           {"auto_ratio", number, "0.99"},
           {"full_warm_up_rounds", integer, "0"},
           {"pt_reserved_cores_perc", number, "0.5"},
           {"steps_per_epoch", integer, "null"}});
}

void AddFiles(Keys& keys) {
  constexpr int64_t kSector = 4096;
  const Keys rows = {
      Honoured("aio.block_size", integer, "1048576",
               "bytes that one read or write of a file moves; 4096 to 1 GiB, a multiple of 4096",
               [](DeepSpeedDraft& draft, const Value& value) {
                 const int64_t bytes = ReadInteger(value, kSector, 1 << 30);
                 if (bytes % kSector != 0)
                   throw ValueError(value, "no multiple of 4096, the sector that disks move; write " +
                                               std::to_string(bytes / kSector * kSector) + " or " +
                                               std::to_string((bytes / kSector + 1) * kSector));
                 draft.file_block_bytes = bytes;
               }),
      Honoured("aio.queue_depth", integer, "8", "such reads or writes under way at once; 1 to 1024",
               [](DeepSpeedDraft& draft, const Value& value) { draft.file_queue_depth = ReadInteger(value, 1, 1024); }),
      Always("aio.intra_op_parallelism", integer, "1", "any", kUnderWay),
      Always("aio.thread_count", integer, "1", "any", kUnderWay),
      Always("aio.single_submit", boolean, "false", "true|false", kUnderWay),
      Always("aio.overlap_events", boolean, "true", "true|false",
             "a block is begun as another ends; what is read and written is the same either way"),
      Refused("aio.use_gds", boolean, "false", deepspeed_missing::kGds),
  };
  keys.insert(keys.end(), rows.begin(), rows.end());
}

}  // namespace

Keys OffloadKeys() {
  Keys keys;
  AddParam(keys);
  AddOptimizer(keys);
  AddLegacy(keys);
  AddZenFlow(keys);
  AddFiles(keys);
  return keys;
}

}  // namespace ds::deepspeed_table
