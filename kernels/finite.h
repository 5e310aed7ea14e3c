// Where a tensor stops being finite.
#pragma once

#include <cstdint>

#include "kernels/context.h"
#include "kernels/tensor.h"

namespace ds {

/// The index of the first element that is an infinity or NaN; -1 where there is none. f64, f32, bf16 or f16.
/// For tensors of the CPU.
int64_t FirstNonFinite(const KernelContext& context, Tensor x);

/// first[0] = that index, on any device. first: [1] i64, on the device of x.
void FindNonFinite(const KernelContext& context, Tensor x, Tensor first);

}  // namespace ds
