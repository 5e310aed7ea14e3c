// Where a tensor stops being finite.
#pragma once

#include <cstdint>

#include "kernels/context.h"
#include "kernels/tensor.h"

namespace ds {

/// The index of the first element that is an infinity or NaN; -1 where there is none. f64, f32, bf16 or f16.
int64_t FirstNonFinite(const KernelContext& context, Tensor x);

}  // namespace ds
