#include "runtime/exec/executor.h"

#include "runtime/exec/gpu_executor.h"
#include "runtime/exec/host_executor.h"
#include "runtime/plan/stages.h"

namespace ds {
namespace {

/// The stages of a pipeline stand in a ring: edge e is between stage e and the next. An edge has two communicators, one
/// a direction, so that what goes on and what comes back do not wait for each other.
class Ring {
 public:
  explicit Ring(const PlanOptions& options)
      : options_(options), stages_(options.pipeline.stages), stage_(options.pipeline.stage) {
    const ScheduleShape shape = ShapeOf(options);
    closed_ = shape.kind != ScheduleKind::zb_v && shape.chunks() > stages_;
  }

  /// Cuts `all`, of every rank, into the pairs of one direction. `from_lower`: on which stream the stage before an edge
  /// uses it; `from_upper`: the stage behind. A rank is at two edges, so pairs are made in turns.
  void Split(Communicator& all, StreamKind of_lower, StreamKind of_upper, Communicators& made) const {
    for (int turn = 0; turn < kTurns; ++turn) {
      if (turn == kOdd && stages_ < 3) continue;
      if (turn == kLast && !closed_) continue;
      const bool lower = TurnOf(stage_) == turn;
      const int edge = lower ? stage_ : (stage_ + stages_ - 1) % stages_;
      const bool member = Exists(edge) && TurnOf(edge) == turn;
      const int color = member ? edge * options_.ranks + options_.rank : options_.world() + options_.job_rank();
      // Of the last edge the lower stage is the last.
      std::unique_ptr<Communicator> pair = all.Split(color, lower ? 0 : 1);
      if (member) made.messages[static_cast<size_t>(lower ? of_lower : of_upper)] = std::move(pair);
    }
  }

 private:
  enum Turn { kEven, kOdd, kLast, kTurns };
  int TurnOf(int edge) const { return edge == stages_ - 1 ? kLast : edge % 2; }
  bool Exists(int edge) const { return edge < stages_ - 1 || closed_; }

  const PlanOptions& options_;
  const int stages_, stage_;
  bool closed_ = false;  // from the last stage to the first too
};

/// Between the two stages that have a tied token table.
void SplitTied(Communicator& all, const PlanOptions& options, Communicators& made) {
  const std::vector<StreamKind> streams = MessageStreamsOf(options);
  const bool member = !streams.empty() && streams.back() == StreamKind::tied;
  const int color = member ? options.rank : options.ranks + options.job_rank();
  std::unique_ptr<Communicator> pair = all.Split(color, options.pipeline.stage);
  if (member) made.messages[static_cast<size_t>(StreamKind::tied)] = std::move(pair);
}

/// Over the ranks of this rank's stage. A single one sends nothing.
std::unique_ptr<Communicator> OfStage(const CommunicatorFactory& factory, const std::string& stream,
                                      const PlanOptions& options) {
  if (options.ranks == 1) return SingleRankFactory()(stream);
  return factory(stream)->Split(options.pipeline.stage, options.rank);
}

}  // namespace

Communicators Communicators::Make(const CommunicatorFactory& host, const PlanOptions& options,
                                  const CommunicatorFactory& device) {
  Communicators made;
  made.control = host("control");
  if (options.snapshot) made.checkpoint = host("checkpoint");
  const CommunicatorFactory& of_tensors = device ? device : host;
  if (options.pipeline.stages == 1) {
    made.gather = of_tensors("gather");
    made.reduce = of_tensors("reduce");
  } else {
    made.gather = OfStage(of_tensors, "gather", options);
    made.reduce = OfStage(of_tensors, "reduce", options);
    const Ring ring(options);
    ring.Split(*of_tensors("next"), StreamKind::send_next, StreamKind::receive_previous, made);
    ring.Split(*of_tensors("previous"), StreamKind::receive_next, StreamKind::send_previous, made);
    if (options.pipeline.ties) SplitTied(*of_tensors("tied"), options, made);
  }
  if (device) made.sums = device("sums");
  return made;
}

void Communicators::Abort(const std::string& reason) noexcept {
  for (Communicator* communicator : {control.get(), gather.get(), reduce.get(), sums.get(), checkpoint.get()})
    if (communicator) communicator->Abort(reason);
  for (const auto& communicator : messages)
    if (communicator) communicator->Abort(reason);
}

int64_t PassMessage(Communicators& communicators, const BoundAction& bound) {
  Communicator& pair = *communicators.messages[static_cast<size_t>(bound.action->stream)];
  const int other = 1 - pair.rank();
  if (bound.action->kind == ActionKind::receive) {
    pair.Receive(bound.message, other);
    return 0;
  }
  pair.Send(bound.message, other);
  return bound.message.bytes();
}

std::unique_ptr<Executor> MakeExecutor(const ExecutorContext& context) {
  if (context.gpu) return std::make_unique<GpuExecutor>(context);
  return std::make_unique<HostExecutor>(context);
}

}  // namespace ds
