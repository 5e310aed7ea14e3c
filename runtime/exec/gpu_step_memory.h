// What a GPU executor keeps beside the plan's buffers: a step's samples and losses, and what the ranks decide by. On
// the device, ExecutorBytes in all (plan/executor_memory.h), and page-locked on the host, where it is copied from or
// to.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "runtime/exec/executor.h"
#include "runtime/state/memory.h"

namespace ds {

class GpuStepMemory {
 public:
  /// `gpu` outlives it. Throws RuntimeError where the device has too little, or where what is laid out is not what the
  /// plan counted.
  GpuStepMemory(const ModelLayout& layout, const Plan& plan, MicroBatchShape shape, Gpu& gpu);

  /// Enqueues copies of the samples to the device; of the host's no more is needed after it. Not before the copies of
  /// the step before are done. Throws RuntimeError when they are not of the shape.
  void Upload(const std::vector<MicroBatch>& micro_batches, void* stream);

  // Of a micro-batch, i32 [samples, tokens], on the device; first_key is empty where attention crosses documents.
  std::vector<Tensor> tokens, targets, first_key;
  Tensor losses;                ///< f64 [micro-batches]
  Tensor facts, gathered;       ///< f64, what Norm sends and receives (step_facts.h)
  Tensor gradient_scale, skip;  ///< f32 [1], i32 [1]: kernels/step_decision.h
  // The same of the host:
  Tensor host_losses, host_gathered, host_scale, host_skip;

 private:
  Gpu& gpu_;
  const MicroBatchShape shape_;
  Memory memory_;
  std::unique_ptr<void, std::function<void(void*)>> pinned_;
  Tensor host_batches_;
};

}  // namespace ds
