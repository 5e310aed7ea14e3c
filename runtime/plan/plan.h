// The plan of a training step of one rank: buffers and an ordered list of actions. Data only.
//
// The list order is a total order that every stream follows: an action starts when the earlier actions of its own stream
// and all of its `waits` are done. Passes (runtime/plan/planner.h) build a plan; check.h proves it; price.h predicts what
// it costs; runtime/exec runs it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/model/layout.h"

namespace ds {

enum class ActionKind : uint8_t {
  forward, recompute, backward_input, backward_weight,  // compute
  gather, release, reduce,                              // ZeRO
  sum_tied,        // adds a tied unit's second gradient slot to its first
  norm,            // gradient norm, overflow check, loss and stop flag of the step; one small all-gather
  optimizer_step,  // one unit
};
const char* NameOf(ActionKind kind);  ///< "Forward", "BackwardInput", ...

enum class StreamKind : uint8_t { compute, gather, reduce };  ///< each with a communicator of its own
const char* NameOf(StreamKind stream);

enum class Tier : uint8_t { device, host, file };

enum class BufferKind : uint8_t {
  activation,      // a segment's output [N, D] of the compute dtype
  activation_grad, // its gradient
  saved, carried,  // SegmentSpec's, laid out by LayOut()
  scratch,         // a compute action's own
  gathered,        // a whole unit in the compute dtype (ZeRO-3)
  gradient,        // a whole unit's gradient of one micro-batch, fp32 (stages 2 and 3, exact_sharding)
  workspace,       // a collective's own
  resident,        // lives as long as the job; owned by the ParamStore
};
const char* NameOf(BufferKind kind);

/// What a resident buffer holds. Element types: working: compute dtype; all else fp32.
enum class StateKind : uint8_t { none, working, master, moment1, moment2, gradient };
const char* NameOf(StateKind state);

struct Buffer {
  std::string name;  ///< "act.layer3.mlp.mb0", "layer3.mlp/working", ...
  BufferKind kind = BufferKind::scratch;
  Tier tier = Tier::device;
  int64_t bytes = 0;
  int64_t offset = -1;  ///< in the tier's arena; -1 for resident buffers, which the ParamStore places
  // resident, gathered and gradient buffers:
  StateKind state = StateKind::none;
  int unit = -1;
  int slot = -1;        ///< gradients
  bool whole = false;   ///< the whole unit; false: this rank's shard
  int alias_of = -1;    ///< fp32 master: the working buffer it is a part of (bytes is then 0)
};

/// What an action does with a buffer. An action has at most one use with a given (operand, index).
enum class Operand : uint8_t {
  input,        // a segment's x (activation); absent for the embedding
  output,       // a segment's y; absent for the head
  output_grad,  // dy; absent for the head
  input_grad,   // dx; absent for the embedding
  saved, carried, scratch,
  params,       // index: position in units_of(segment). A whole unit: resident working buffer or gathered
  grads,        // index: position in slots_of(segment). A whole gradient, resident or of one micro-batch
  shard,        // gather: the source; reduce: the destination; sum_tied, norm, optimizer_step: gradient (index: slot order)
  whole,        // gather: the destination; reduce: the source
  workspace,
  state,        // optimizer_step: index by StateKind (working, master, moment1, moment2)
};
const char* NameOf(Operand operand);

enum class Access : uint8_t { read, write, update /* read and write */ };

struct Use {
  Operand operand;
  int index = 0;
  int buffer = -1;
  Access access = Access::read;
};

struct Action {
  ActionKind kind = ActionKind::forward;
  StreamKind stream = StreamKind::compute;
  int segment = -1;
  int unit = -1;          ///< gather, release, reduce, sum_tied, optimizer_step
  int slot = -1;          ///< reduce
  int bucket = -1;        ///< gather, reduce: one collective a bucket
  int micro_batch = -1;
  bool accumulate = false;  ///< backward_weight: gradients are added to; reduce: the result is added to the shard
  bool all = false;         ///< reduce: an all-gather of the reduced bucket follows (ZeRO-0)
  std::vector<Use> uses;
  std::vector<int> waits;   ///< indices of earlier actions, on other streams, that must be done
  bool signals = false;     ///< some later action waits for this one
  int64_t bytes = 0;        ///< moved by this rank: sent by a collective
  double flops = 0;

  const Use* Find(Operand operand, int index = 0) const;
};

/// Bytes and time, predicted before the job starts.
struct Price {
  int64_t resident_bytes[3] = {0, 0, 0};  ///< a tier
  int64_t arena_bytes[3] = {0, 0, 0};     ///< a tier
  int64_t peak_bytes[3] = {0, 0, 0};      ///< resident + arena + what the libraries take
  double step_seconds = 0;
  double compute_seconds = 0, exposed_comm_seconds = 0;
};

/// How a plan was asked for: everything that its passes look at besides the layout.
struct PlanOptions {
  int rank = 0, ranks = 1;
  int stage = 0;
  DType compute = DType::f32;
  int64_t micro_batches = 1;
  RecomputeMode recompute = RecomputeMode::none;
  bool exact_sharding = false;
  int moments = 2;          ///< fp32 states of the optimizer: Adam 2, Lion and Adagrad 1, SGD 0 or 1
  int64_t prefetch_bucket_size = 50'000'000, max_live_parameters = 1'000'000'000, max_reuse_distance = 1'000'000'000;
  bool training = true;     ///< false: forward only, for validation and generation
};

struct Plan {
  PlanOptions options;
  std::vector<Buffer> buffers;
  std::vector<Action> actions;
  int64_t arena_bytes[3] = {0, 0, 0};
  Price price;
};

}  // namespace ds
