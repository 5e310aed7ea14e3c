// The computation of a segment: what Forward, Recompute, BackwardInput and BackwardWeight do with the tensors that the
// plan gave them. Stateless: everything a pass needs is in its arguments, so one object serves every micro-batch.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/context.h"
#include "kernels/gpu.h"
#include "kernels/tensor.h"
#include "runtime/model/segment_spec.h"

namespace ds {

/// What is the same for all actions of a step, and which part of the global batch a micro-batch is.
struct StepContext {
  KernelContext kernel;
  bool training = true;       ///< dropout on; the head writes dlogits
  uint64_t seed = 0;          ///< the job's seed
  int64_t step = 0;           ///< from 1; part of the dropout stream
  int64_t first_sample = 0;   ///< index in the global batch of the micro-batch's sample 0
  double loss_scale = 1.0;    ///< dlogits = loss_scale / global_tokens * d(sum of losses)
  int64_t global_tokens = 0;  ///< tokens of the global batch
};

/// The tensors of one pass. Those that SegmentSpec does not list for the segment are empty.
struct SegmentIo {
  Tensor tokens;                       ///< embedding: [B, T] i32
  Tensor targets;                      ///< head: [B, T] i32; negative: ignored
  Tensor first_key;                    ///< attention within documents: [B, T] i32 (kernels/attention.h)
  Tensor x, y;                         ///< [B, T, D] of the compute dtype
  Tensor dy, dx;                       ///< gradients of y and x
  std::vector<Tensor> params;          ///< SegmentSpec order, then the token table of a tied head; compute dtype
  std::vector<Tensor> grads;           ///< like params; fp32 (f64 when compute is f64)
  bool accumulate = false;             ///< backward_weight adds to grads
  std::vector<Tensor> saved, carried;  ///< SegmentSpec order
  Tensor scratch;                      ///< at least the bytes that SegmentSpec states for the pass, u8
  /// Head, on the device of the tensors: Forward sets it to the sum of the losses, in fp64.
  double* loss_sum = nullptr;
};

/// Every pass throws RuntimeError naming segment, pass and tensor when a tensor it needs is absent or has another dtype
/// or shape. Dropout masks are functions of (seed, step, layer, place, index in the global batch): of no layout.
class Segment {
 public:
  virtual ~Segment() = default;
  /// Writes y (the head: loss_sum) and `saved`. When not training the head needs no dlogits and writes none.
  virtual void Forward(const StepContext& step, const SegmentIo& io) const = 0;
  /// Writes `saved` again from x, to the same bits, without y. Without scratch, but on
  /// GPUs where SegmentSpec states some; the head's is that of Forward.
  virtual void Recompute(const StepContext& step, const SegmentIo& io) const = 0;
  /// Writes dx (absent for the embedding) and carried.
  virtual void BackwardInput(const StepContext& step, const SegmentIo& io) const = 0;
  /// Writes or adds to grads; reads x, saved, carried, dy (the embedding: tokens, dy); no params. Gradients of the
  /// vocabulary's padding are zero.
  virtual void BackwardWeight(const StepContext& step, const SegmentIo& io) const = 0;
};

/// Tables and settings that segments of one model share.
struct SegmentOptions {
  ModelConfig model;
  DType compute = DType::f32;
  MicroBatchShape shape;
  Device device;       ///< of all tensors of its passes
  Gpu* gpu = nullptr;  ///< where that is a GPU: for tables that a segment keeps there; outlives the segments
};

/// The implementation of `spec`.
std::unique_ptr<Segment> MakeSegment(const SegmentSpec& spec, const SegmentOptions& options);

/// Head only: the logits [rows, vocabulary] f32 (f64 when compute is f64) of rows [first_row, first_row + rows) of x
/// ([N, D]), for generation.
/// scratch: normed [rows, D], statistics and the padded logits are allocated inside.
void HeadLogits(const SegmentOptions& options, const SegmentSpec& head, const StepContext& step,
                const std::vector<Tensor>& params, Tensor x, int64_t first_row, int64_t rows, Tensor logits);

}  // namespace ds
