// Optimizer updates over flat shards, in fp32 IEEE operations (explicit fma, correctly rounded sqrt and division, no
// flush to zero): the CPU, in every instruction set, and GPU give the same bits. (Of a NaN it is promised that it is
// one: which of several goes on, and the GPU's bits of it, are the hardware's.) Scalars are computed once on the host,
// in double, and rounded to fp32.
//
// For every kernel: master and moments are f32 [n]; the gradient is [n], of f32, or on the CPU of bf16 or f16, which is
// read as it is and exact in fp32; `working`, when given, is [n] of the compute dtype and receives the rounded master.
// The gradient is first multiplied by `gradient_scale` (clipping and loss scale). Elements are independent: any
// partition gives the same bits. Each update is given twice: as its paper has it, and as the sequence of roundings that
// every backend must follow; [x] is one rounding to fp32.
//
// On the CPU a step is one pass over memory, in the widest vectors that the CPU has. Arrays that exceed the last cache
// have their 16-bit working copy written past the caches. The environment's DS_OPTIMIZER_KERNELS (portable, avx2,
// avx512) forces an instruction set: for tests.
#pragma once

#include <cstdint>

#include "kernels/context.h"
#include "kernels/tensor.h"

namespace ds {

/// What a step reads from memory of its tensors' device when it runs, so that on a GPU no host waits to know it.
struct StepControl {
  const float* gradient_scale = nullptr;  ///< when given, in place of the scalars' gradient_scale
  const int32_t* skip = nullptr;          ///< when given and not 0, the step changes nothing
};

/// Asks the system to put the pages of a gradient, master, moment or working copy (CPU; a whole tensor of a step, not
/// touched yet) on the memory nodes of the threads that step them: on hosts with several, where pages otherwise go to
/// the node of whoever touches them first. Advice: false where the system takes none. Tensors of GPUs are left alone.
bool PlaceStepMemory(const Tensor& t);

/// Whether a step over arrays of so many bytes in all writes a 16-bit working copy past the CPU's caches: it does when
/// the last of them does not hold the arrays.
bool StepExceedsCaches(int64_t bytes);

/// Adam (Kingma, Ba 2014) and AdamW (Loshchilov, Hutter 2017), bias correction as in PyTorch and DeepSpeed:
///   decoupled: p *= 1 - lr * weight_decay;  otherwise g += weight_decay * p
///   m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
///   p -= step_size * m / (sqrt(v) / sqrt_correction2 + eps), step_size = lr / (1 - beta1^t)
/// Roundings: g = [weight_decay * p + [g * gradient_scale]];  m = [beta1 * m + [one_minus_beta1 * g]];
///   v = [beta2 * v + [[one_minus_beta2 * g] * g]];  d = [[sqrt v] * inverse_sqrt_correction2 + eps];
///   p = [-step_size * [m / d] + [p * decay_factor]]
struct AdamScalars {
  float gradient_scale, beta1, one_minus_beta1, beta2, one_minus_beta2, eps;
  float weight_decay;              ///< added to the gradient; 0 when decoupled
  float decay_factor;              ///< 1 - lr * weight_decay when decoupled; else 1
  float step_size;                 ///< lr / (1 - beta1^t), or lr without bias correction
  float inverse_sqrt_correction2;  ///< 1 / sqrt(1 - beta2^t), or 1
};
AdamScalars MakeAdamScalars(double lr, double beta1, double beta2, double eps, double weight_decay, bool decoupled,
                            bool bias_correction, int64_t step, double gradient_scale);
void AdamStep(const KernelContext& context, const AdamScalars& s, Tensor gradient, Tensor master, Tensor m, Tensor v,
              Tensor working, const StepControl& control = {});

/// SGD with momentum as in PyTorch: g += weight_decay p; buffer = momentum * buffer + (1 - dampening) g (the first
/// step: buffer = g); nesterov: g + momentum * buffer; p -= lr * that. momentum 0: buffer is not read or written.
/// Roundings: g = [weight_decay * p + [g * gradient_scale]];  b = [momentum * b + [one_minus_dampening * g]];
///   d = [momentum * b + g] or b;  p = [-lr * d + p]
struct SgdScalars {
  float gradient_scale, lr, momentum, one_minus_dampening, weight_decay;
  bool nesterov, first_step;
};
void SgdStep(const KernelContext& context, const SgdScalars& s, Tensor gradient, Tensor master, Tensor buffer,
             Tensor working, const StepControl& control = {});

/// Lion (Chen et al. 2023): p *= 1 - lr * weight_decay; p -= lr * sign(beta1 m + (1 - beta1) g);
/// m = beta2 m + (1 - beta2) g.
/// Roundings: g = [g * gradient_scale];  c = [beta1 * m + [one_minus_beta1 * g]];
///   p = [-lr * sign(c) + [p * decay_factor]];  m = [beta2 * m + [one_minus_beta2 * g]]
struct LionScalars {
  float gradient_scale, lr, beta1, one_minus_beta1, beta2, one_minus_beta2, decay_factor;
};
void LionStep(const KernelContext& context, const LionScalars& s, Tensor gradient, Tensor master, Tensor m,
              Tensor working, const StepControl& control = {});

/// Adagrad (Duchi et al. 2011), as in PyTorch without learning-rate decay: g += weight_decay p; v += g^2;
/// p -= lr * g / (sqrt(v) + eps).
/// Roundings: g = [weight_decay * p + [g * gradient_scale]];  v = [g * g + v];  p = [-lr * [g / [[sqrt v] + eps]] + p]
struct AdagradScalars {
  float gradient_scale, lr, eps, weight_decay;
};
void AdagradStep(const KernelContext& context, const AdagradScalars& s, Tensor gradient, Tensor master, Tensor v,
                 Tensor working, const StepControl& control = {});

/// RMSprop (Hinton 2012), as in PyTorch, not centred: g += weight_decay p; v = alpha v + (1 - alpha) g^2;
/// q = g / (sqrt(v) + eps); buffer = momentum * buffer + q; p -= lr * buffer. momentum 0: p -= lr * q, and buffer is
/// not read or written. Roundings: g = [weight_decay * p + [g * gradient_scale]];  v = [alpha * v + [[one_minus_alpha *
/// g] * g]];
///   q = [g / [[sqrt v] + eps]];  b = [momentum * b + q];  p = [-lr * b + p] or [-lr * q + p]
struct RmsPropScalars {
  float gradient_scale, lr, alpha, one_minus_alpha, eps, momentum, weight_decay;
};
void RmsPropStep(const KernelContext& context, const RmsPropScalars& s, Tensor gradient, Tensor master, Tensor v,
                 Tensor buffer, Tensor working, const StepControl& control = {});

}  // namespace ds
