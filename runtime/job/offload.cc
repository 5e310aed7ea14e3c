#include "runtime/job/offload.h"

#include <algorithm>
#include <vector>

#include "runtime/base/number.h"
#include "runtime/base/text.h"
#include "runtime/job/names.h"
#include "runtime/job/tree.h"

namespace ds {
namespace {

const std::string kZero = "deepspeed.zero_optimization.";
constexpr const char* kFolders = "memory.nvme_path";

/// One kind of state that DeepSpeed offloads, and its keys.
struct Part {
  std::string section;  // "offload_param"
  std::vector<std::string> legacy;
  const OffloadDraft& draft;
  OffloadTarget& target;

  std::string Path(const char* leaf) const { return kZero + section + "." + leaf; }
};

class Resolver {
 public:
  Resolver(const DeepSpeedDraft& draft, const Value& root, const std::string& folder, Problems& problems)
      : draft_(draft),
        root_(root),
        folder_(folder),
        problems_(problems),
        spec_(draft.spec),
        optimizer_{"offload_optimizer", {"cpu_offload"}, draft.offload_optimizer, draft.spec.zero.offload_optimizer},
        param_{"offload_param",
               {"cpu_offload_param", "cpu_offload_params"},
               draft.offload_param,
               draft.spec.zero.offload_param} {}

  void Run() {
    ResolveTarget(optimizer_);
    ResolveTarget(param_);
    ResolveActivations();
    SettleByStage();
    ResolveFolders();
    ResolveRatio();
    ResolveBlocks();
    CheckStages();
    CheckFolders();
  }

 private:
  void Note(const std::string& text) { spec_.notes.push_back(text); }
  bool IsWritten(const std::string& path) const {
    const Value* value = FindPath(root_, path);
    return value != nullptr && !value->is_null();
  }

  /// The key that says where the part is kept, as it is written.
  std::string Written(const Part& part) const {
    if (part.draft.device) return part.Path("device");
    for (const std::string& name : part.legacy)
      if (IsWritten(kZero + name)) return kZero + name;
    return part.Path("device");
  }

  void ResolveTarget(const Part& part) {
    const bool cpu = part.draft.legacy && AsBool(*part.draft.legacy);
    part.target = part.draft.device.value_or(cpu ? OffloadTarget::cpu : OffloadTarget::none);
    if (!part.draft.legacy) return;
    const std::string device = part.Path("device");
    if (!part.draft.device) {
      if (cpu) Note(kZero + part.legacy[0] + ": another spelling, read as " + device + ": cpu.");
    } else if (cpu != (part.target == OffloadTarget::cpu)) {
      std::string legacy = kZero + part.legacy[0];
      for (const std::string& name : part.legacy)
        if (IsWritten(kZero + name)) legacy = kZero + name;
      problems_.Add(legacy, ValueError(*part.draft.legacy, "an older spelling of " + device + ", which is " +
                                                               NameOf(part.target, kOffloadNames) + "; remove it"));
    }
  }

  /// What "auto" cannot choose, since the ZeRO stage leaves one place.
  void SettleByStage() {
    const auto settle = [&](const Part& part, int least, const char* what) {
      if (part.target != OffloadTarget::automatic || spec_.zero.stage >= least) return;
      part.target = OffloadTarget::none;
      Note(Written(part) + ": auto is none: zero_optimization.stage is " + std::to_string(spec_.zero.stage) +
           ", under which " + what + ".");
    };
    settle(optimizer_, 1, "every rank holds all optimizer state");
    settle(param_, 3, "every rank computes with parameters that it holds whole");
  }

  void ResolveActivations() {
    if (!draft_.cpu_checkpointing) return;
    OffloadTarget& activations = spec_.memory.offload_activations;
    if (!IsWritten("memory.offload_activations"))
      activations = OffloadTarget::cpu;
    else if (activations != OffloadTarget::cpu)
      Note(
          "deepspeed.activation_checkpointing.cpu_checkpointing: memory.offload_activations is written too, and wins.");
  }

  /// Adds a folder; false where it is there already.
  bool AddFolder(const std::string& written) {
    std::string path = ResolvePath(written, folder_);
    while (path.size() > 1 && path.back() == '/') path.pop_back();
    std::vector<std::string>& folders = spec_.memory.nvme_path;
    if (std::find(folders.begin(), folders.end(), path) != folders.end()) return false;
    folders.push_back(path);
    return true;
  }

  void ResolveFolders() {
    std::vector<std::string> written;
    written.swap(spec_.memory.nvme_path);
    for (const std::string& path : written)
      if (!AddFolder(path)) problems_.Add(kFolders, Shown(path) + " is there twice; name each folder once");
    for (const Part* part : {&optimizer_, &param_}) {
      if (!part->draft.nvme_path) continue;
      const std::string path = part->Path("nvme_path");
      if (part->target != OffloadTarget::nvme && part->target != OffloadTarget::automatic) {
        Note(path + ": of no effect: " + part->section + ".device is " + NameOf(part->target, kOffloadNames) + ".");
        continue;
      }
      const bool first = spec_.memory.nvme_path.empty();
      if (AddFolder(*part->draft.nvme_path) && !first)
        Note(path + ": one more folder: files are striped over " + Join(spec_.memory.nvme_path, ", ") + ".");
    }
    if (!written.empty() && !MayUseFiles(spec_))
      Note(std::string(kFolders) + ": of no effect: nothing is kept in files.");
  }

  void ResolveRatio() {
    if (!draft_.offload_ratio && !draft_.offload_ratio_auto) return;
    const std::string path = optimizer_.Path("ratio");
    if (optimizer_.target == OffloadTarget::none)
      return Note(path + ": of no effect: offload_optimizer.device is none.");
    spec_.zero.offload_ratio_auto = draft_.offload_ratio_auto;
    if (draft_.offload_ratio_auto) return;
    spec_.zero.offload_ratio = *draft_.offload_ratio;
    if (*draft_.offload_ratio == 0) Note(path + ": 0 is as offload_optimizer.device: none.");
  }

  void ResolveBlocks() {
    std::vector<std::string> idle;
    const auto take = [&](const char* key, const std::optional<int64_t>& written, int64_t& value) {
      if (!written) return;
      if (MayUseFiles(spec_))
        value = *written;
      else
        idle.push_back(key);
    };
    take("deepspeed.aio.block_size", draft_.file_block_bytes, spec_.memory.file_block_bytes);
    take("deepspeed.aio.queue_depth", draft_.file_queue_depth, spec_.memory.file_queue_depth);
    if (!idle.empty()) Note(Join(idle, ", ") + ": of no effect: nothing is kept in files.");
  }

  void CheckStages() {
    if (!problems_.Good({"deepspeed.zero_optimization.stage"})) return;
    const int stage = spec_.zero.stage;
    const auto needs = [&](const Part& part, const char* reason) {
      problems_.Add(Written(part), "zero_optimization.stage is " + std::to_string(stage) + ", under which " + reason);
    };
    if (param_.target != OffloadTarget::none && stage < 3)
      needs(param_, "every rank computes with parameters that it holds whole; write stage: 3, or remove this key");
    if (optimizer_.target != OffloadTarget::none && stage < 1)
      needs(optimizer_, "every rank holds all optimizer state; write stage: 1, 2 or 3, or remove this key");
  }

  void CheckFolders() {
    if (!spec_.memory.nvme_path.empty() || !UsesFiles(spec_)) return;
    if (!problems_.Good({kFolders, "deepspeed.zero_optimization.offload_optimizer.nvme_path",
                         "deepspeed.zero_optimization.offload_param.nvme_path"}))
      return;
    const bool activations = spec_.memory.offload_activations == OffloadTarget::nvme;
    problems_.Add(activations ? "memory.offload_activations"
                              : Written(optimizer_.target == OffloadTarget::nvme ? optimizer_ : param_),
                  std::string("no folder is named for it; write one that every node has, such as /local_nvme, as ") +
                      (activations ? "" : "nvme_path beside it, or ") + kFolders);
  }

  const DeepSpeedDraft& draft_;
  const Value& root_;
  const std::string& folder_;
  Problems& problems_;
  JobSpec& spec_;
  Part optimizer_, param_;
};

bool AnyIs(const JobSpec& spec, OffloadTarget target) {
  return spec.zero.offload_optimizer == target || spec.zero.offload_param == target ||
         spec.memory.offload_activations == target;
}

}  // namespace

bool UsesFiles(const JobSpec& spec) { return AnyIs(spec, OffloadTarget::nvme); }

bool MayUseFiles(const JobSpec& spec) {
  return UsesFiles(spec) || (AnyIs(spec, OffloadTarget::automatic) && !spec.memory.nvme_path.empty());
}

bool LeavesPlacementOpen(const JobSpec& spec) {
  return AnyIs(spec, OffloadTarget::automatic) ||
         (spec.zero.offload_ratio_auto && spec.zero.offload_optimizer != OffloadTarget::none);
}

void ResolveOffload(const DeepSpeedDraft& draft, const Value& root, const std::string& folder, Problems& problems) {
  Resolver(draft, root, folder, problems).Run();
}

}  // namespace ds
