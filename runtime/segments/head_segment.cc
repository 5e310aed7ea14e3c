// losses = cross_entropy(norm(x) * lm_head^T, targets), in blocks of rows: only one block of logits exists at a time
// beside their gradients.
#include <algorithm>
#include <cstring>

#include "kernels/cross_entropy.h"
#include "kernels/reduce.h"
#include "runtime/base/error.h"
#include "runtime/segments/segment_base.h"

namespace ds {
namespace {

/// Rows [begin, begin + count) of a tensor whose first dimension is rows.
Tensor RowRange(const Tensor& t, int64_t begin, int64_t count) {
  int64_t width = t.numel() / t.shape[0];
  return t.Flat(begin * width, count * width).View({count, width});
}

class HeadSegment : public SegmentBase {
 public:
  HeadSegment(const SegmentSpec& spec, const SegmentOptions& options)
      : SegmentBase(spec, options),
        norm_(FindNorm()),
        lm_head_{spec.tied ? static_cast<int>(spec.params.size()) : RequiredParam("head.weight"), -1, false},
        dlogits_(RequiredTensor(spec.saved, "dlogits")) {}

  void Forward(const StepContext& step, const SegmentIo& io) const override {
    if (io.loss_sum == nullptr) throw RuntimeError(spec().name + ": Forward: loss_sum is absent");
    SumInto(step.kernel, LossAndSaved(Pass::forward, step, io), Tensor(io.loss_sum, DType::f64, Shape{1}, device()));
  }

  void Recompute(const StepContext& step, const SegmentIo& io) const override {
    LossAndSaved(Pass::recompute, step, io);
  }

  void BackwardInput(const StepContext& step, const SegmentIo& io) const override {
    RequireBackward(Pass::backward_input, io);
    Require(Pass::backward_input, "dx", io.dx, compute(), SampleShape());
    RequireParams(Pass::backward_input, io);
    LinearBackwardInput(step, lm_head_, io, io.saved[dlogits_], io.carried[norm_.dnormed]);
    NormBackwardInput(step, model(), norm_, io, Rows(io.x), {}, Rows(io.dx));
  }

  void BackwardWeight(const StepContext& step, const SegmentIo& io) const override {
    RequireBackward(Pass::backward_weight, io);
    RequireGrads(io);
    LinearBackwardWeight(step, lm_head_, io, io.saved[dlogits_], io.saved[norm_.normed]);
    NormBackwardWeight(step, model(), norm_, io, Rows(io.x));
  }

  /// logits [rows of x, vocabulary] of x [rows, D], a block of rows at a time.
  void Logits(const StepContext& step, const std::vector<Tensor>& params, Tensor x, Tensor logits) const {
    SegmentIo io;
    io.params = params;
    RequireParams(Pass::forward, io);
    const int64_t rows = x.shape[0], block_rows = std::min(rows, kHeadRows), padded = model().padded_vocabulary();
    std::vector<std::vector<unsigned char>> owned;
    auto allocate = [&owned](DType dtype, Shape shape) {
      owned.emplace_back(shape.numel() * SizeOf(dtype));
      return Tensor(owned.back().data(), dtype, shape);
    };
    io.saved.resize(spec().saved.size());
    io.saved[norm_.normed] = allocate(compute(), {rows, hidden()});
    io.saved[norm_.rstd] = allocate(wide(), {rows});
    if (norm_.mean >= 0) io.saved[norm_.mean] = allocate(wide(), {rows});
    Tensor block = allocate(wide(), {block_rows, padded});

    NormForward(step, model(), norm_, io, x);
    const int64_t row_bytes = model().vocabulary * static_cast<int64_t>(SizeOf(wide()));
    for (int64_t begin = 0; begin < rows; begin += kHeadRows) {
      int64_t count = std::min(kHeadRows, rows - begin);
      LinearForward(step, lm_head_, io, RowRange(io.saved[norm_.normed], begin, count), RowRange(block, 0, count));
      for (int64_t i = 0; i < count; ++i)
        std::memcpy(RowRange(logits, begin + i, 1).data, RowRange(block, i, 1).data, row_bytes);
    }
  }

 private:
  /// Returns the losses, [N], in the scratch.
  Tensor LossAndSaved(Pass pass, const StepContext& step, const SegmentIo& io) const {
    RequireForward(pass, step, io);
    Scratch scratch(spec().name, io.scratch);
    Tensor logits = scratch.Take(wide(), {std::min(rows(), kHeadRows), model().padded_vocabulary()});
    Tensor losses = scratch.Take(wide(), {rows()});
    double scale = step.training ? step.loss_scale / static_cast<double>(step.global_tokens) : 1.0;

    NormForward(step, model(), norm_, io, Rows(io.x));
    // Of one dtype, logits become their gradients in place: no block, and the matrix is packed once. A GPU's kernel
    // takes 16-bit logits too, which is what peers compute the loss from.
    const bool in_place = step.training && (compute() == wide() || device().kind == DeviceKind::cuda);
    const int64_t block_rows = in_place ? rows() : kHeadRows;
    for (int64_t begin = 0; begin < rows(); begin += block_rows) {
      int64_t count = std::min(block_rows, rows() - begin);
      Tensor dlogits = step.training ? RowRange(io.saved[dlogits_], begin, count) : Tensor();
      Tensor block = in_place ? dlogits : RowRange(logits, 0, count);
      LinearForward(step, lm_head_, io, RowRange(io.saved[norm_.normed], begin, count), block);
      CrossEntropy(step.kernel, block, io.targets.Flat(begin, count), model().vocabulary, scale,
                   losses.Flat(begin, count), dlogits);
    }
    return losses;
  }

  /// dlogits may be absent where it is not written.
  void RequireForward(Pass pass, const StepContext& step, const SegmentIo& io) const {
    Require(pass, "x", io.x, compute(), SampleShape());
    Require(pass, "targets", io.targets, DType::i32, {samples(), tokens()});
    RequireParams(pass, io);
    if (step.training && step.global_tokens <= 0)
      throw RuntimeError(spec().name + ": global_tokens is " + std::to_string(step.global_tokens) +
                         "; a training step needs the tokens of its global batch");
    std::vector<Tensor> saved = io.saved;
    std::vector<TensorSpec> expected = spec().saved;
    if (!step.training && static_cast<size_t>(dlogits_) < saved.size()) {
      saved.erase(saved.begin() + dlogits_);
      expected.erase(expected.begin() + dlogits_);
    }
    RequireAll(pass, "saved", saved, expected);
  }

  void RequireBackward(Pass pass, const SegmentIo& io) const {
    Require(pass, "x", io.x, compute(), SampleShape());
    RequireAll(pass, "saved", io.saved, spec().saved);
    RequireAll(pass, "carried", io.carried, spec().carried);
  }

  const NormIndices norm_;
  const LinearIndices lm_head_;  // tied: the token table, behind SegmentSpec's parameters
  const int dlogits_;
};

}  // namespace

std::unique_ptr<Segment> MakeHeadSegment(const SegmentSpec& spec, const SegmentOptions& options) {
  return std::make_unique<HeadSegment>(spec, options);
}

void HeadLogits(const SegmentOptions& options, const SegmentSpec& head, const StepContext& step,
                const std::vector<Tensor>& params, Tensor x, int64_t first_row, int64_t rows, Tensor logits) {
  const int64_t hidden = options.model.hidden;
  const DType wide = options.compute == DType::f64 ? DType::f64 : DType::f32;
  if (head.kind != SegmentKind::head) throw RuntimeError(head.name + ": logits are asked of a segment that is no head");
  if (x.dtype != options.compute || x.shape.rank() != 2 || x.shape[1] != hidden)
    throw RuntimeError(head.name + ": HeadLogits: x is " + NameOf(x.dtype) + " " + x.shape.str() + ", expected " +
                       NameOf(options.compute) + " [rows, " + std::to_string(hidden) + "]");
  if (rows <= 0 || first_row < 0 || first_row + rows > x.shape[0])
    throw RuntimeError(head.name + ": HeadLogits: rows [" + std::to_string(first_row) + ", +" + std::to_string(rows) +
                       ") of x " + x.shape.str());
  Shape expected{rows, options.model.vocabulary};
  if (logits.dtype != wide || logits.shape != expected)
    throw RuntimeError(head.name + ": HeadLogits: logits is " + NameOf(logits.dtype) + " " + logits.shape.str() +
                       ", expected " + NameOf(wide) + " " + expected.str());
  HeadSegment(head, options).Logits(step, params, RowRange(x, first_row, rows), logits);
}

}  // namespace ds
