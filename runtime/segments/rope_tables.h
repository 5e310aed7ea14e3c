// The cosines and sines of RoPE, shared by all attention segments of a model on a device.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "kernels/gpu.h"
#include "kernels/tensor.h"

namespace ds {

class RopeTables {
 public:
  /// Positions 0 .. positions-1; dtype f32 or f64. In memory of `gpu`, which outlives them; null: of the host.
  RopeTables(double theta, int64_t positions, int64_t head_size, DType dtype, Gpu* gpu);
  const Tensor& cos() const { return cos_; }
  const Tensor& sin() const { return sin_; }

 private:
  std::vector<unsigned char> host_;
  std::unique_ptr<void, std::function<void(void*)>> device_;
  Tensor cos_, sin_;
};

/// The tables for these arguments, made once and kept while anyone holds them. Safe to call from several threads.
std::shared_ptr<const RopeTables> SharedRopeTables(double theta, int64_t positions, int64_t head_size, DType dtype,
                                                   Gpu* gpu);

}  // namespace ds
