// What a rank does with what is known of its machine: prices, algorithms of matrix products, the peak behind mfu.
#include <chrono>
#include <cstdio>

#include "kernels/workspace.h"
#include "runtime/base/cpu_name.h"
#include "runtime/plan/machine_match.h"
#include "runtime/plan/planner.h"
#include "runtime/plan/products.h"
#include "runtime/train/matmul_agreement.h"
#include "runtime/train/trainer.h"

namespace ds {

Machine Trainer::UseMachine() {
  const Gpu* const gpu = environment_.gpu;
  const DeviceKind kind = gpu ? gpu->device().kind : DeviceKind::cpu;
  const std::string name = gpu ? gpu->name() : CpuName();
  if (const auto& file = environment_.machine) {
    for (const std::string& mismatch :
         {MachineMismatch(*file, kind, name), ChoicesMismatch(*file, name, MatMulLibraryVersion())})
      if (!mismatch.empty()) Event("machine", mismatch);
  }
  if (spec_.training.fp8) peak_flops_ = PeakFlops(environment_.machine, kind, name, DType::f8_e4m3);
  if (!peak_flops_) peak_flops_ = PeakFlops(environment_.machine, kind, name, ComputeDType(spec_.precision));
  // A CPU's was measured with some threads.
  if (peak_flops_ && !gpu && environment_.machine->device.threads > 0)
    *peak_flops_ *=
        static_cast<double>(environment_.threads) / static_cast<double>(environment_.machine->device.threads);
  return MachineFor(environment_.machine, kind, spec_.memory.nvme_path);
}

namespace {

/// The fastest algorithm of a product, on the GPU of the calling thread.
std::optional<MatMulAlgorithm> Fastest(const KernelContext& kernel, const MatMulKey& key) {
  const std::vector<MatMulCandidate> candidates = TimeMatMulCandidates(kernel, key);
  return candidates.empty() ? std::nullopt : std::optional(candidates.front().algorithm);
}

}  // namespace

/// The plan, or of a pipeline those of all its stages.
std::vector<Plan> Trainer::StagesLike(const Plan& plan) const {
  if (plan.options.pipeline.stages == 1) return {plan};
  return BuildStagePlans(layout_, plan.options,
                         MachineFor(environment_.machine, plan.options.device, spec_.memory.nvme_path));
}

/// Before memory is taken: timing takes some of its own.
void Trainer::ChooseMatMulAlgorithms() {
  Gpu* const gpu = environment_.gpu;
  if (!gpu || MatMulLibraryVersion() == 0) return;
  MatMulChoices choices;
  const auto& file = environment_.machine;
  if (file && ChoicesMismatch(*file, gpu->name(), MatMulLibraryVersion()).empty())
    for (const MatMulChoice& choice : file->matmul_choices) choices[choice.key] = choice.algorithm;
  if (!spec_.training.deterministic) {
    std::set<MatMulKey> keys;
    for (const Plan* own : {&plan_, &forward_plan_})  // rank 0 times what every stage multiplies
      for (const Plan& plan : StagesLike(*own)) keys.merge(MatMulKeysOf(layout_, plan));
    std::erase_if(keys, [&](const MatMulKey& key) { return choices.contains(key); });
    const auto begin = std::chrono::steady_clock::now();
    const GpuStream stream(*gpu);
    const Memory workspace(MatMulWorkspaceBytes(), gpu);
    KernelContext kernel;
    kernel.stream = stream.get();
    kernel.workspace = workspace.Bytes(0, workspace.bytes()).data;
    kernel.workspace_bytes = workspace.bytes();
    choices.merge(AgreeOnMatMulChoices(
        keys, [&](const MatMulKey& key) { return Fastest(kernel, key); }, *communicators_.control));
    char seconds[32];
    std::snprintf(seconds, sizeof seconds, "%.1f s",
                  std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    if (!keys.empty())
      Event("matmul_timing", "algorithms of " + std::to_string(keys.size()) +
                                 " matrix products were timed on rank 0 in " + seconds +
                                 " (training.deterministic is false)");
  }
  if (!choices.empty()) SetMatMulChoices(MatMulLibraryVersion(), std::move(choices));
}

}  // namespace ds
