#include "kernels/optimizer_kernels.h"

#include <atomic>
#include <cstdlib>
#include <stdexcept>

#include "kernels/cpu_features.h"

namespace ds::detail {
namespace {

/// Null until the first step, or a test, chooses.
std::atomic<const OptimizerKernels*> chosen{nullptr};

}  // namespace

std::vector<const OptimizerKernels*> UsableOptimizerKernels() {
  std::vector<const OptimizerKernels*> usable = {&kPortableOptimizerKernels};
  if (kCompiledAvx2OptimizerKernels && HasAvx2()) usable.push_back(kCompiledAvx2OptimizerKernels);
  if (kCompiledAvx512OptimizerKernels && HasAvx512()) usable.push_back(kCompiledAvx512OptimizerKernels);
  return usable;
}

const OptimizerKernels& FindOptimizerKernels(const char* name) {
  const std::vector<const OptimizerKernels*> usable = UsableOptimizerKernels();
  if (!name || !*name) return *usable.back();
  std::string names;
  for (const OptimizerKernels* kernels : usable) {
    if (kernels->name == std::string(name)) return *kernels;
    names += (names.empty() ? "" : ", ") + std::string(kernels->name);
  }
  throw std::invalid_argument("DS_OPTIMIZER_KERNELS is '" + std::string(name) + "', and this CPU and this build have " +
                              names + ": name one of these, or unset it");
}

const OptimizerKernels& ChosenOptimizerKernels() {
  const OptimizerKernels* kernels = chosen.load(std::memory_order_acquire);
  if (!kernels) {
    kernels = &FindOptimizerKernels(std::getenv("DS_OPTIMIZER_KERNELS"));
    chosen.store(kernels, std::memory_order_release);
  }
  return *kernels;
}

void ChooseOptimizerKernels(const OptimizerKernels& kernels) { chosen.store(&kernels, std::memory_order_release); }

}  // namespace ds::detail
