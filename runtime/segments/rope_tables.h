// The cosines and sines of RoPE, shared by all attention segments of a model in a process.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/tensor.h"

namespace ds {

class RopeTables {
 public:
  /// Positions 0 .. positions-1; dtype f32 or f64.
  RopeTables(double theta, int64_t positions, int64_t head_size, DType dtype);
  Tensor cos() const { return View(0); }
  Tensor sin() const { return View(bytes_.size() / 2); }

 private:
  Tensor View(size_t begin) const;
  std::vector<unsigned char> bytes_;  // cos, then sin
  DType dtype_;
  Shape shape_;
};

/// The tables for these arguments, made once and kept while anyone holds them. Safe to call from several threads.
std::shared_ptr<const RopeTables> SharedRopeTables(double theta, int64_t positions, int64_t head_size, DType dtype);

}  // namespace ds
