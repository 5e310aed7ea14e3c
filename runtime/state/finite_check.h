// Where a tensor stops being finite, on whichever device it is. Waits for the device: for checks beside the step.
#pragma once

#include "kernels/context.h"
#include "runtime/state/memory.h"

namespace ds {

class FiniteCheck {
 public:
  /// Of tensors of `gpu` and of the host; null: of the host. Outlives this.
  explicit FiniteCheck(Gpu* gpu) : gpu_(gpu), index_(gpu ? sizeof(int64_t) : 0, gpu) {}

  /// The index of the first element that is an infinity or NaN, behind what is enqueued on kernel.stream; -1: none.
  int64_t First(const KernelContext& kernel, const Tensor& x) const;

 private:
  Gpu* gpu_;
  Memory index_;
};

}  // namespace ds
