// Which device a kernel runs on: the one that its tensors are on. Internal to kernels/.
#pragma once

#include <span>
#include <stdexcept>
#include <string>

#include "kernels/check.h"
#include "kernels/cuda_twins.h"

namespace ds::detail {

/// Finds the one device that a call's tensors are on. Absent tensors (no memory) are on none.
class CommonDevice {
 public:
  explicit CommonDevice(const char* kernel) : kernel_(kernel) {}

  void See(const Tensor& t) {
    if (!t.data) return;
    if (!first_)
      first_ = t;
    else if (t.device != first_.device)
      Check(false, kernel_,
            Describe("one tensor", first_) + ", " + Describe("another", t) + "; all must be on one device");
  }
  void See(std::span<const Tensor> tensors) {
    for (const Tensor& t : tensors) See(t);
  }
  void See(std::span<const SquareTerm> terms) {
    for (const SquareTerm& term : terms) See(term.x), See(term.sum);
  }
  void See(const MatMulOptions& options) { See(options.bias); }
  template <class Other>
  void See(const Other&) {}

  /// The CPU when there was no tensor at all.
  Device device() const { return first_.device; }

 private:
  const char* kernel_;
  Tensor first_;
};

/// The device of all tensors among the arguments. Throws std::invalid_argument when they are on several.
template <class... Arguments>
Device DeviceOf(const char* kernel, const Arguments&... arguments) {
  CommonDevice common(kernel);
  (common.See(arguments), ...);
  return common.device();
}

/// Throws std::invalid_argument unless all tensors among the arguments are on the CPU: for kernels without a twin.
template <class... Arguments>
void RequireCpu(const char* kernel, const Arguments&... arguments) {
  Check(DeviceOf(kernel, arguments...).kind == DeviceKind::cpu, kernel, "runs on the CPU alone, got tensors of a GPU");
}

/// False when the tensors among the arguments are on the CPU. When they are on a GPU: calls the kernel's twin with the
/// arguments and returns true, or throws std::runtime_error when this program has none.
template <class... Parameters, class... Arguments>
bool RanOnCuda(const char* kernel, void (*twin)(Parameters...), const Arguments&... arguments) {
  if (DeviceOf(kernel, arguments...).kind == DeviceKind::cpu) return false;
  if (!twin)
    throw std::runtime_error(
        std::string(kernel) + ": tensors are on a GPU, but " +
        (&cuda::kLinked ? "there is no GPU version of this kernel" : "this program was built without GPU code"));
  twin(arguments...);
  return true;
}

}  // namespace ds::detail
