// The plan of a training step of one rank: buffers and an ordered list of actions. Data only.
//
// The list order is a total order that every stream follows: an action starts when the earlier actions of its own
// stream and all of its `waits` are done. Passes (runtime/plan/planner.h) build a plan; check.h proves it; price.h
// predicts what it costs; runtime/exec runs it.
//
// What each kind does with its operands (bucket ranges: ParamUnit::buckets; owned ranges: ModelLayout::ShardRanges).
// A place "inside" a whole buffer is the owned range of the bucket; "in" a shard buffer it is ShardRange::shard_begin.
//
//   Forward         input, params -> output, saved; scratch. Head: adds to the loss of its micro-batch
//   Recompute       input, params -> saved (a buffer of its own: the forward's was dropped)
//   BackwardInput   input, params, saved, output_grad -> input_grad, carried; scratch. The embedding has none
//   BackwardWeight  input, saved, carried, output_grad -> grads; scratch. No params: they may be gone. Writes the
//                   gradients (padding too: zeros), or adds to them when `accumulate`
//   Gather          one all-gather of a bucket: shard -> the bucket's range of whole. ZeRO-3: from the working shard
//                   into a gathered buffer. After OptimizerStep: shard and whole are one working buffer, in place
//   Release         the gathered buffer `whole` is dropped: its memory serves others
//   Reduce          one reduce-scatter of a bucket: whole -> this rank's piece, which replaces the bucket's place in or
//                   inside `shard`, or is added to it when `accumulate`. `shard` may be the buffer `whole` itself, or
//                   another whole gradient, or a shard. ReduceWorkspaceOf() says what its workspace holds. When `all`,
//                   an all-gather from inside `shard` to the bucket's range of that buffer follows
//   SumTied         shard[second slot] is added to shard[first slot]: owned ranges, or all of it when the unit's
//                   optimizer state is whole (ZeRO-0)
//   Norm            reads shard[first slot of each unit]: owned ranges alone, so that every stage sums the same
//                   numbers. All-gathers a double a unit and kNormExtras more on the compute stream's communicator
//   OptimizerStep   shard[slot] and the scalars of Norm -> state: master, moments and, of the master's ranges, working
//   Fetch, Store    from -> to: towards the device, and away from it. Between two tiers, one bucket's piece of this
//   rank's
//                   state, or a whole activation. See "Tiers" below
//   Squares         shard[slot] of one bucket -> its sum of squares is added to its unit's in `sums`, which Norm reads
//   Send, Receive   from goes to stage `peer`; to comes from there. A segment's output of one micro-batch, its gradient
//                   (`gradient`), or one bucket of a tied unit's gradient slot. See "Pipelines" below
//
// Pipelines. The model's segments are cut into chunks, in model order, which the stages hold (PlanOptions::pipeline,
// schedule.h). A plan has the segments, units and slots of its rank's stage alone (stages.h); the layout stays that of
// the whole model. Ranks of one stage are a data-parallel group, in which all that ZeRO does stays. Where a chunk's
// neighbour is on another stage, Send and Receive stand in both plans at one place of an order that all stages keep, so
// that none waits for itself. A tied token table on two stages is kept, and stepped, by both: each sends the other the
// gradient that it accumulated, and both add them in the same order. Its owner, the first, counts it in Norm and writes
// it to checkpoints.
//
// Tiers. State may live on the host or in files (PlanOptions::placement). An action computes on the tier of its stream:
// the host stream on the host, all others on the device. What lives on another tier is there as a `staging` buffer:
// this rank's piece of one bucket. Fetch and Store move it, a file's by way of the host. Actions on state that lives
// below the device name a bucket: SumTied, Squares and OptimizerStep then do that bucket's piece alone, on the host
// stream.
//
// Updates that wait. Where the host steps and must know the norm first (Placement::steps_early is false), its updates
// of a step are the first actions of the host stream in the plan of the *next* step, beside that step's forward: each
// unit's OptimizerStep, the moves around it and, where ranks hold the unit whole, its Gathers are listed before the
// first reader of its parameters. These actions are `pending`: all of them do something, or none, as the step before
// stepped or not. Gradients of such units and what Norm decided go from one run of the plan to the next.
// PlanOptions::updates_only is a plan of them alone, for whoever reads parameters between two steps.
//
// The head's Forward also needs the targets, the embedding's passes the tokens, attention's passes the first keys where
// attention stays within documents: not buffers of the plan. A step begins when every stream is done with the step
// before.
//
// Padding (between parameters, at a unit's end, rows beyond real_rows) is zero in every parameter, moment and gradient.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/model/layout.h"

namespace ds {

enum class ActionKind : uint8_t {
  // compute
  forward,
  recompute,
  backward_input,
  backward_weight,
  // ZeRO
  gather,
  release,
  reduce,
  // the end of a step
  sum_tied,        // adds a tied unit's second gradient slot to its first
  norm,            // gradient norm, overflow check, loss and stop flag of the step; one small all-gather
  optimizer_step,  // one unit, or one bucket of it on the host
  // tiers
  fetch,    // towards the device
  store,    // away from it
  squares,  // what norm needs of gradients that leave the device
  // pipelines
  send,
  receive,
};
inline constexpr int kActionKinds = static_cast<int>(ActionKind::receive) + 1;
const char* NameOf(ActionKind kind);  ///< "Forward", "BackwardInput", ...

enum class StreamKind : uint8_t {
  compute,  // those up to `tied` each have a communicator of their own
  gather,
  reduce,
  send_next,  // to the stage after this one, round about; receive_previous is the other end
  receive_previous,
  send_previous,  // to the stage before it; receive_next is the other end
  receive_next,
  tied,   // between the two stages that have a tied token table
  fetch,  // host to device
  store,  // device to host
  read,   // file to host
  write,  // host to file
  host,   // computes on the host, beside the device
};
inline constexpr int kStreams = 13;
const char* NameOf(StreamKind stream);

enum class Tier : uint8_t { device, host, file };
inline constexpr int kTiers = 3;
/// Bytes: what a bucket's piece begins at in the file tier, and is rounded up to. Each then has disk sectors of its
/// own.
inline constexpr int64_t kFileAlignment = 4096;
inline int64_t FileRoundUp(int64_t bytes) { return (bytes + kFileAlignment - 1) / kFileAlignment * kFileAlignment; }
const char* NameOf(Tier tier);
/// The tier that actions of the stream compute on.
inline Tier TierOf(StreamKind stream) { return stream == StreamKind::host ? Tier::host : Tier::device; }

enum class BufferKind : uint8_t {
  activation,       // a segment's output [N, D] of the compute dtype
  activation_grad,  // its gradient
  saved,            // SegmentSpec's, laid out by LayOut()
  carried,          // the same
  scratch,          // a compute action's own
  gathered,         // a whole unit in the compute dtype (ZeRO-3)
  gradient,         // a whole unit's gradient of one micro-batch (stages 2 and 3, exact_sharding)
  workspace,        // a collective's own
  staging,          // a bucket's piece of a resident buffer, on another tier than that
  sums,             // a double a unit: what Squares adds up
  resident,         // lives as long as the job; owned by the ParamStore
};
const char* NameOf(BufferKind kind);

/// What a resident buffer holds. Element types: working: compute dtype; all else fp32.
enum class StateKind : uint8_t { none, working, master, moment1, moment2, gradient };
const char* NameOf(StateKind state);
/// f64 models keep everything in f64; all others keep the working copy in the compute dtype and the rest in f32.
DType DTypeOfState(StateKind state, DType compute);

struct Buffer {
  std::string name;  ///< "act.layer3.mlp.mb0", "layer3.mlp/working", ...
  BufferKind kind = BufferKind::scratch;
  Tier tier = Tier::device;
  int64_t bytes = 0;
  int64_t offset = -1;  ///< in the tier's arena; -1 for resident buffers, which the ParamStore places
  int64_t numel = 0;    ///< elements of resident, gathered, gradient and staging buffers, and these:
  StateKind state = StateKind::none;
  int unit = -1;
  int slot = -1;       ///< gradients
  int bucket = -1;     ///< staging
  bool whole = false;  ///< the whole unit; false: this rank's shard
  int alias_of = -1;   ///< master of fp32 (f64) compute: the working buffer it is a part of (bytes is then 0)
};

/// What an action does with a buffer. An action has at most one use with a given (operand, index).
enum class Operand : uint8_t {
  input,        // a segment's x (activation); absent for the embedding
  output,       // a segment's y; absent for the head
  output_grad,  // dy; absent for the head
  input_grad,   // dx; absent for the embedding
  saved,
  carried,
  scratch,
  params,  // index: position in units_of(segment). A whole unit: resident working buffer or gathered
  grads,   // index: position in slots_of(segment). A whole gradient, resident or of one micro-batch
  shard,   // gather: the source; reduce: the destination; sum_tied, norm, optimizer_step: a gradient (index: the slot)
  whole,   // gather: the destination; reduce: the source
  workspace,
  state,  // optimizer_step: index by StateKind (working, master, moment1, moment2)
  from,   // fetch, store, send
  to,     // fetch, store, receive
  sums,   // squares, norm
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
  int unit = -1;    ///< gather, release, reduce, sum_tied, optimizer_step, squares; fetch and store of state
  int slot = -1;    ///< reduce; fetch, store, send and receive of gradients
  int bucket = -1;  ///< gather, reduce: one collective a bucket; squares; others: one on the host, -1 all of the unit
  int micro_batch = -1;
  /// fetch, store, send, receive: of this state; none: of an activation, or what a segment saved.
  StateKind state = StateKind::none;
  int peer = -1;            ///< send, receive: the stage
  bool gradient = false;    ///< send, receive: of the gradient of the segment's output, not of the output
  bool accumulate = false;  ///< backward_weight: gradients are added to; reduce: the result is added to the shard
  bool all = false;         ///< reduce: an all-gather of the reduced bucket follows (ZeRO-0)
  /// Of the step before: its OptimizerStep on the host, the moves of that, the Gather of what it wrote. Left out where
  /// that step did not step, or where its updates were done already.
  bool pending = false;
  bool beside_last = false;  ///< gather: runs beside the pass of a segment that is listed before it
  std::vector<Use> uses;
  std::vector<int> waits;  ///< indices of earlier actions, on other streams, that must be done
  bool signals = false;    ///< some later action waits for this one
  /// Sent by this rank: of a collective over n ranks (n - 1) / n of the bucket, twice if `all`. Fetch, Store, Receive:
  /// moved.
  int64_t bytes = 0;
  double flops = 0;

  const Use* Find(Operand operand, int index = 0) const;
};

/// Where a Reduce keeps its things in its workspace: first what the communicator's reduce-scatter needs, then, unless
/// the result goes `direct`ly to its place, this rank's piece. Direct: `shard` is a shard buffer and not accumulated
/// into. One rank needs no workspace: nothing is sent, the bucket is copied or added (or stays, when shard and whole
/// are one).
struct ReduceWorkspace {
  int64_t communicator_bytes = 0;  ///< at offset 0
  int64_t piece_offset = 0, piece_bytes = 0;
  int64_t bytes() const { return piece_offset + piece_bytes; }
};
ReduceWorkspace ReduceWorkspaceOf(int64_t bucket_bytes, int ranks, bool direct, DeviceKind device);

/// Doubles that Norm's all-gather carries besides the units' sums: loss, notices (a rank was asked
/// to stop, or could not write a checkpoint), first micro-batch with a bad loss.
inline constexpr int kNormExtras = 3;

/// Bytes and time, predicted before the job starts.
struct Price {
  int64_t resident_bytes[3] = {0, 0, 0};  ///< a tier
  int64_t arena_bytes[3] = {0, 0, 0};     ///< a tier
  int64_t snapshot_bytes = 0;             ///< of the host tier: what checkpoints are written from
  int64_t workspace_bytes = 0;            ///< of a GPU: what its kernels share
  int64_t executor_bytes = 0;             ///< of a GPU: what executors and segments keep (executor_memory.h)
  /// Resident + arena + what the libraries take; host: and the snapshot; a GPU's device: and workspace and executors.
  int64_t peak_bytes[3] = {0, 0, 0};
  double step_seconds = 0;
  double compute_seconds = 0, exposed_comm_seconds = 0;
};

/// Where each kind of state lives between its uses.
struct Placement {
  Tier optimizer = Tier::device;   ///< fp32 master and moments; below the device the host steps them
  Tier gradients = Tier::device;   ///< this rank's shard of reduced gradients (stages 2 and 3)
  Tier parameters = Tier::device;  ///< shards of the working copy that are gathered (stage 3)
  Tier activations = Tier::device;
  /// The share of all parameters whose optimizer state and gradients are placed so; the first units of the model, whose
  /// step nothing hides, stay on the device.
  double optimizer_ratio = 1;
  /// A bucket is stepped on the host as soon as its gradient is reduced, before Norm: nothing then is clipped or
  /// skipped. False: in the next step, before the forward of its segment (Action::pending).
  bool steps_early = false;
  bool operator==(const Placement&) const = default;
};

/// A rank's place in a pipeline, and how that works.
struct PipelinePlace {
  int stages = 1, stage = 0;
  ScheduleKind schedule = ScheduleKind::one_f_one_b;
  int virtual_stages = 1;  ///< chunks a stage
  std::vector<int> begin;  ///< of each chunk: its first segment; empty: one chunk, of them all
  bool ties = false;       ///< the tied token table is on two stages: the first chunk's and the last's
  bool operator==(const PipelinePlace&) const = default;
};

/// How a plan was asked for: everything that its passes look at besides the layout.
struct PlanOptions {
  int rank = 0, ranks = 1;  ///< in the data-parallel group of its stage
  PipelinePlace pipeline;
  DeviceKind device = DeviceKind::cpu;  ///< of the device tier: a CPU's is memory of its host
  int stage = 0;
  DType compute = DType::f32;
  int64_t micro_batches = 1;
  RecomputeMode recompute = RecomputeMode::none;  ///< the layout's too: what its segments save follows it
  /// Stages 0 and 1 also reduce every micro-batch. The price: micro_batches times the reduce-scatters of a step, and a
  /// gradient buffer of a unit; stage 1 then keeps a gradient shard only, as stage 2 does.
  bool exact_sharding = false;
  bool deterministic = true;  ///< false: attention's backward may take another kernel, which the price knows
  int moments = 2;            ///< fp32 states of the optimizer: Adam 2, Lion and Adagrad 1, SGD 0 or 1, RMSprop 1 or 2
  int64_t prefetch_bucket_size = 50'000'000, max_live_parameters = 1'000'000'000, max_reuse_distance = 1'000'000'000;
  Placement placement;
  bool training = true;       ///< false: forward only, for validation and generation
  bool updates_only = false;  ///< of training: what a step left to the next one (Action::pending), and nothing else
  bool snapshot = false;      ///< checkpoints are written from a copy of this rank's shards in host memory

  int world() const { return pipeline.stages * ranks; }
  int job_rank() const { return pipeline.stage * ranks + rank; }  ///< stages are the mesh's outermost axis
};

/// That a run of the plan takes.
inline int64_t MicroBatchesOf(const PlanOptions& options) { return options.updates_only ? 0 : options.micro_batches; }

struct Plan {
  PlanOptions options;
  std::vector<Buffer> buffers;
  std::vector<Action> actions;
  int64_t arena_bytes[3] = {0, 0, 0};
  Price price;
};

/// Whether the plan has updates of the step before: each of its steps leaves some to the next.
bool HasPending(const Plan& plan);

/// Where a plan's resident buffers are in Plan::buffers; -1: it has none.
struct ResidentIndex {
  std::vector<int> working, master, moment1, moment2;  ///< of a unit
  std::vector<int> gradient;                           ///< of a slot
};
ResidentIndex IndexResident(const ModelLayout& layout, const Plan& plan);

}  // namespace ds
