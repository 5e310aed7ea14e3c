// Which instruction set the optimizers run, for the length of a test.
#pragma once

#include "kernels/optimizer_kernels.h"

namespace ds::test {

class WithKernels {
 public:
  WithKernels() : before_(detail::ChosenOptimizerKernels()) {}
  ~WithKernels() { detail::ChooseOptimizerKernels(before_); }
  WithKernels(const WithKernels&) = delete;
  WithKernels& operator=(const WithKernels&) = delete;
  void Use(const detail::OptimizerKernels& kernels) { detail::ChooseOptimizerKernels(kernels); }

 private:
  const detail::OptimizerKernels& before_;
};

}  // namespace ds::test
