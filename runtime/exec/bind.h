// Turns a plan's actions, which name buffers, into actions on tensors. Done once; a step then only runs them.
#pragma once

#include <memory>
#include <vector>

#include "runtime/optim/optimizer.h"
#include "runtime/plan/plan.h"
#include "runtime/segments/segment.h"
#include "runtime/state/param_store.h"

namespace ds {

/// The memory of a plan's buffers that do not outlive a step, a block a tier.
class Arena {
 public:
  /// Room for every plan of `plans`, which take turns; the device tier is on `gpu` (null: on the host), which outlives
  /// the arena.
  /// Files: of `files`, which has room for them and outlives the arena; null where no plan has any.
  explicit Arena(const std::vector<const Plan*>& plans, Gpu* gpu = nullptr, FileTier* files = nullptr);
  Tensor Bytes(const Buffer& buffer) const;
  int64_t FileOffset(const Buffer& buffer) const { return file_offset_ + buffer.offset; }  ///< of the file tier's
  int64_t bytes(Tier tier) const { return memory_[static_cast<int>(tier)].bytes(); }

 private:
  Memory memory_[kTiers];  // of the file tier none
  int64_t file_offset_ = -1;
};

/// The gradient of one unit, for its norm.
struct UnitGradient {
  int unit = 0;
  UnitTensor gradient;
};

/// One end of a move: memory, or a place in the rank's file tier.
struct MoveEnd {
  Tensor memory;  ///< u8
  int64_t file_offset = -1;
};

/// An action and its tensors; those of other kinds of action are empty.
struct BoundAction {
  const Action* action = nullptr;
  // Forward, Recompute, BackwardInput, BackwardWeight:
  SegmentIo io;
  std::vector<Tensor> clear;  ///< gaps between parameters of a gradient that is about to be written
  // Gather, Reduce:
  Tensor shard, whole, workspace;
  Tensor staging;  ///< reduce: the reduced bucket, before it is added or copied to `shard`; empty: direct
  Tensor all;      ///< reduce: the bucket that receives every rank's reduced piece
  // SumTied, Norm, OptimizerStep:
  std::vector<std::pair<Tensor, Tensor>> sums;  ///< first += second
  std::vector<UnitGradient> gradients;          ///< in model order
  UnitState state;
  Tensor squares;               ///< Squares, Norm: f64 [units]
  bool clears_squares = false;  ///< Squares: the first of the step
  // Fetch, Store:
  MoveEnd from, to;
  Tensor message;           ///< Send, Receive: what is carried
  bool step_whole = false;  ///< the whole unit, not this rank's shard of it
};

struct BindContext {
  const ModelLayout& layout;
  const Plan& plan;
  const ParamStore& store;
  const Arena& arena;
  MicroBatchShape shape;
  int64_t hidden = 0;
};

/// Throws RuntimeError that names the action when an operand is missing or does not fit.
std::vector<BoundAction> Bind(const BindContext& context);

}  // namespace ds
