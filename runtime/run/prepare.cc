#include "runtime/run/prepare.h"

#include <algorithm>
#include <filesystem>

#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/job/tokenizer_file.h"
#include "runtime/plan/check.h"
#include "runtime/plan/machine_match.h"
#include "runtime/plan/manifest.h"
#include "runtime/plan/place.h"
#include "runtime/plan/planner.h"
#include "runtime/plan/price.h"

namespace ds {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRunMachine = "machine.yaml";  // in a run directory

/// RUN-ID of a checkpoint RUN-ID/checkpoints/step-N; empty when it lies elsewhere.
std::string RunOf(const fs::path& checkpoint) {
  fs::path folder = fs::absolute(checkpoint).lexically_normal();
  if (folder.filename().empty()) folder = folder.parent_path();
  if (folder.parent_path().filename() != "checkpoints") return "";
  return folder.parent_path().parent_path().filename().string();
}

}  // namespace

Override ParseOverride(const std::string& text) {
  size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    throw UsageError("--set " + text + ": expected KEY=VALUE, as in --set training.steps=100");
  }
  return {text.substr(0, equals), text.substr(equals + 1)};
}

bool IsJobName(const std::string& name) {
  const auto bad = [](char c) { return c == '/' || c == '\x7f' || static_cast<unsigned char>(c) < 0x20; };
  return !name.empty() && name[0] != '.' && std::none_of(name.begin(), name.end(), bad);
}

void CheckJobName(const std::string& name) {
  if (IsJobName(name)) return;
  throw UsageError(
      "job.name `" + Shown(name) +
      "` cannot name a folder: it must not be empty, begin with `.`, or contain `/` or a control character "
      "(a newline, say)");
}

ResumeChoice ChooseResume(const std::string& resume, const std::string& output, const std::string& name) {
  ResumeChoice choice;
  if (resume == "never") return choice;
  if (resume == "auto") {
    if (auto found = NewestComplete(fs::path(output) / name, &choice.fallbacks))
      choice.checkpoint = fs::absolute(*found).string();
  } else {
    std::error_code ignored;
    if (!fs::exists(resume, ignored) && resume.find('/') == std::string::npos)
      throw UsageError("cannot resume from " + Shown(resume) +
                       ": it does not exist; --resume takes never, auto (the newest checkpoint under OUTPUT/NAME), or "
                       "the path of a checkpoint or a run directory");
    choice.checkpoint = fs::absolute(ResolveResume(resume)).lexically_normal().string();
  }
  if (!choice.checkpoint.empty()) choice.parent = RunOf(choice.checkpoint);
  return choice;
}

MachineChoice ChooseMachine(const std::string& file, const std::string& resume, const std::string& parent) {
  MachineChoice choice;
  std::optional<MachineFile> before;
  fs::path of_run;
  std::string unreadable;
  if (!parent.empty()) {
    of_run = fs::path(resume).parent_path().parent_path() / kRunMachine;
    std::error_code ignored;
    try {
      if (fs::exists(fs::symlink_status(of_run, ignored))) before = ReadMachineFile(of_run);
    } catch (const UsageError& error) {
      unreadable = error.what();
      if (file.empty())
        throw UsageError(unreadable + "\nThe run that is resumed was begun with this machine file: give another with " +
                         "--machine FILE, or remove it to go on without one");
    }
  }
  if (file.empty()) {
    choice.machine = before;
    if (before) choice.from = of_run.string();
    return choice;
  }
  choice.machine = ReadMachineFile(file);
  choice.from = file;
  if (!resume.empty() && !(before == choice.machine))
    choice.changed = "the run that is resumed had " +
                     (before                ? std::string("another machine file")
                      : !unreadable.empty() ? "one that cannot be read (" + unreadable + ")"
                                            : std::string("none")) +
                     ": products may take other algorithms, and bits may differ from here on";
  return choice;
}

void WriteSpec(RunDirectory& directory, const JobSpec& spec, const std::optional<MachineFile>& machine) {
  directory.Write("job.yaml", ToYaml(spec));
  if (spec.data.tokenizer != kByteTokenizer) {
    const std::string bytes = ReadTokenizerFile(spec.data.tokenizer);
    if (SentencePieceId(bytes) != spec.data.tokenizer_id)
      throw UsageError("the tokenizer " + spec.data.tokenizer + " changed while the job was prepared; start it again");
    directory.Write(kRunTokenizer, bytes);
  }
  if (machine) directory.Write(kRunMachine, ToYaml(*machine));
}

PlannedJob PlanJob(const JobSpec& spec, int world, const std::optional<MachineFile>& machine,
                   const std::string& machine_from, const TierRoom& room, DeviceKind device) {
  if (spec.training.fp8 && device == DeviceKind::cuda && machine && LacksFp8(*machine))
    throw UsageError("training.fp8: " + machine->device.name + " (" + machine_from +
                     ") has no 8-bit products, which need compute capability 8.9 or more; write training.fp8: false");
  const Machine priced = MachineFor(machine, device, spec.memory.nvme_path);
  PlacedJob placed = ChoosePlacement(spec, world, device, room, priced);
  const ModelLayout layout = LayoutOf(placed.spec, world);
  const std::vector<Plan> stages =
      BuildStagePlans(layout, PlanOptionsOf(placed.spec, 0, world, device, priced), priced);
  for (const Plan& plan : stages) CheckFits(placed.spec, layout, plan, room, priced);
  if (const std::vector<std::string> faults = CheckRanks(layout, stages); !faults.empty())
    throw RuntimeError(
        "the planner made plans of stages that do not meet (a defect of DeepShard, please report it):\n  " +
        Join(faults, "\n  "));
  PlannedJob planned{std::move(placed.spec), std::move(placed.why), {}};
  for (const Plan& plan : stages) planned.plans.emplace_back(plan.options.job_rank(), ToText(layout, plan));
  std::string& first = planned.plans.front().second;
  if (stages.size() > 1) first = PipelineText(layout, stages, priced) + "\n" + first;
  return planned;
}

}  // namespace ds
