// Cross entropy of a block of rows of logits, and its gradient in the same pass.
#pragma once

#include "kernels/context.h"
#include "kernels/tensor.h"

namespace ds {

/// logits: [N, Vp] f32 (or f64), of which the first `vocabulary` columns are real and the rest is padding.
/// targets: [N] i32; a negative target is ignored (loss 0, gradient 0).
/// losses: [N] f32 (f64 for f64): log(sum exp) - logit[target].
/// dlogits: empty, or [N, Vp] of the compute dtype: (softmax - onehot) * scale, 0 in the padding. It may be logits
/// itself.
void CrossEntropy(const KernelContext& context, Tensor logits, Tensor targets, int64_t vocabulary, double scale,
                  Tensor losses, Tensor dlogits);

}  // namespace ds
