// Matrix products that oneDNN does not do: f64 by our own code, 16-bit types through fp32. Internal to the CPU kernels.
#pragma once

#include "kernels/matmul_onednn.h"

namespace ds::detail {

/// f64, blocked over k and n, on the calling thread. May be slow: f64 is for checking gradients.
void MultiplyDouble(const BlockProduct& p);

/// Converts bounded pieces of a and b to fp32, multiplies those with oneDNN into fp32 and rounds once into c. For f16
/// (16-bit storage, fp32 products) and for whatever MultiplyWithOneDnn declines.
void MultiplyConverted(const BlockProduct& p);

}  // namespace ds::detail
