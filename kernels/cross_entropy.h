// Cross entropy of a block of rows of logits, and its gradient in the same pass.
#pragma once

#include "kernels/context.h"
#include "kernels/tensor.h"

namespace ds {

/// logits: [N, Vp] of a floating dtype, of which the first `vocabulary` columns are real and the rest is padding.
/// targets: [N] i32; a negative target is ignored (loss 0, gradient 0).
/// losses: [N] f32 (f64 for f64): log(sum exp) - logit[target].
/// dlogits: empty, or [N, Vp]: (softmax - onehot) * scale, 0 in the padding. Of any floating dtype for f32 and f64
/// logits, of theirs for bf16 and f16. Where the dtypes are the same it may be the logits' own memory.
/// Computed in fp32 (f64 for f64): of 16-bit logits no fp32 copy is stored but, on the CPU, of a row.
///
/// A target that is not in the vocabulary: std::invalid_argument with its row on the CPU. On a GPU, for which the host
/// does not wait, the row's loss and gradient are NaN.
void CrossEntropy(const KernelContext& context, Tensor logits, Tensor targets, int64_t vocabulary, double scale,
                  Tensor losses, Tensor dlogits);

}  // namespace ds
