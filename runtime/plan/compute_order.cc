// The forward and backward passes of every micro-batch in the schedule's order, with the activations that tie them
// together, and the messages that bring these to other stages.
//
// Without a pipeline: one micro-batch after another, each forward and then backward (1f1b of one stage), so that the
// activations of one are alive at any time.
//
// All stages' work and messages have one order: that in which work ends where every pass takes as long as every other
// (Simulate), each message right behind what it carries. A stage's plan is the part of it that is the stage's. Whatever
// waits, in any plan, for something earlier in its list, waits for something earlier in that order; so the earliest
// action that is not done can always begin, and nothing deadlocks, even where all streams of a rank were one.
#include <stdexcept>

#include "runtime/plan/passes.h"
#include "runtime/plan/stages.h"

namespace ds {
namespace {

class ComputeOrder {
 public:
  ComputeOrder(const ModelLayout& layout, Plan& plan)
      : layout_(layout),
        plan_(plan),
        shape_(ShapeOf(plan.options)),
        chunks_(ChunksOf(layout, plan.options.pipeline)),
        tensors_(static_cast<size_t>(plan.options.micro_batches)) {}

  void Run() {
    if (chunks_.size() != static_cast<size_t>(shape_.chunks()))
      throw std::invalid_argument("OrderCompute: " + std::to_string(chunks_.size()) + " chunks for " +
                                  std::to_string(shape_.stages) + " stages of " +
                                  std::to_string(shape_.virtual_stages));
    const std::vector<std::vector<Work>> work = OrderWork(shape_);
    const std::vector<WorkCost> costs(static_cast<size_t>(shape_.chunks()));
    for (const SimulatedSchedule::Event& event : Simulate(shape_, work, costs).events)
      Add(work[static_cast<size_t>(event.stage)][event.index], event.stage == plan_.options.pipeline.stage);
  }

 private:
  /// Of a micro-batch, by segment; -1: not yet, or not here.
  struct Tensors {
    std::vector<int> output, saved, output_grad, carried;
  };

  void Add(const Work& work, bool here) {
    micro_batch_ = work.micro_batch;
    Tensors& tensors = tensors_[static_cast<size_t>(work.micro_batch)];
    if (tensors.output.empty())
      tensors.output = tensors.saved = tensors.output_grad = tensors.carried =
          std::vector<int>(layout_.segments.size(), -1);
    t_ = &tensors;
    const Chunk chunk = chunks_[static_cast<size_t>(work.chunk)];
    switch (work.kind) {
      case WorkKind::forward:
        for (int s = chunk.begin; here && s < chunk.end; ++s) AddForward(static_cast<size_t>(s));
        if (work.chunk + 1 < shape_.chunks()) AddMessage(work.chunk, false);
        break;
      case WorkKind::backward:
        for (int s = chunk.end; here && s-- > chunk.begin + 1;) AddBackward(static_cast<size_t>(s));
        if (here) AddInput(static_cast<size_t>(chunk.begin));
        if (work.chunk > 0) AddMessage(work.chunk - 1, true);
        if (here) AddWeight(static_cast<size_t>(chunk.begin));
        break;
      case WorkKind::backward_input:
        for (int s = chunk.end; here && s-- > chunk.begin;) AddInput(static_cast<size_t>(s));
        if (work.chunk > 0) AddMessage(work.chunk - 1, true);
        break;
      case WorkKind::backward_weight:
        for (int s = chunk.end; here && s-- > chunk.begin;) AddWeight(static_cast<size_t>(s));
        break;
    }
  }

  std::string Name(const char* what, size_t segment) const {
    return std::string(what) + "." + layout_.segments[segment].name + ".mb" + std::to_string(micro_batch_);
  }

  int NewBuffer(const char* what, BufferKind kind, size_t segment, int64_t bytes) {
    if (bytes == 0) return -1;
    Buffer buffer;
    buffer.name = Name(what, segment);
    buffer.kind = kind;
    buffer.bytes = bytes;
    return AddBuffer(plan_, std::move(buffer));
  }
  int NewOutput(size_t s) { return NewBuffer("act", BufferKind::activation, s, LayOut(layout_.segments[s].output)); }
  int NewOutputGrad(size_t s) {
    return NewBuffer("dact", BufferKind::activation_grad, s, LayOut(layout_.segments[s].output));
  }

  Action NewAction(ActionKind kind, size_t segment, double flops) const {
    Action action;
    action.kind = kind;
    action.segment = static_cast<int>(segment);
    action.micro_batch = micro_batch_;
    action.flops = flops;
    return action;
  }

  static void AddUse(Action& action, Operand operand, int buffer, Access access) {
    if (buffer >= 0) action.uses.push_back({operand, 0, buffer, access});
  }
  int Input(size_t segment) const { return segment == 0 ? -1 : t_->output[segment - 1]; }

  void AddForward(size_t s) {
    const SegmentSpec& spec = layout_.segments[s];
    Action action = NewAction(ActionKind::forward, s, spec.forward_flops);
    t_->output[s] = NewOutput(s);
    t_->saved[s] = NewBuffer("saved", BufferKind::saved, s, LayOut(spec.saved));
    AddUse(action, Operand::input, Input(s), Access::read);
    AddUse(action, Operand::output, t_->output[s], Access::write);
    AddUse(action, Operand::saved, t_->saved[s], Access::write);
    AddOwnBuffer(plan_, action, Operand::scratch, BufferKind::scratch, Name("scratch.forward", s),
                 spec.forward_scratch);
    plan_.actions.push_back(std::move(action));
  }

  void AddBackward(size_t s) {
    AddInput(s);
    AddWeight(s);
  }

  /// Makes the gradient of the segment's input: the output gradient of the one before. The model's first has none.
  void AddInput(size_t s) {
    if (s == 0) return;
    const SegmentSpec& spec = layout_.segments[s];
    t_->carried[s] = NewBuffer("carried", BufferKind::carried, s, LayOut(spec.carried));
    Action action = NewAction(ActionKind::backward_input, s, spec.backward_input_flops);
    t_->output_grad[s - 1] = NewOutputGrad(s - 1);
    AddUse(action, Operand::input, Input(s), Access::read);
    AddUse(action, Operand::saved, t_->saved[s], Access::read);
    AddUse(action, Operand::output_grad, t_->output_grad[s], Access::read);
    AddUse(action, Operand::input_grad, t_->output_grad[s - 1], Access::write);
    AddUse(action, Operand::carried, t_->carried[s], Access::write);
    AddOwnBuffer(plan_, action, Operand::scratch, BufferKind::scratch, Name("scratch.backward_input", s),
                 spec.backward_input_scratch);
    plan_.actions.push_back(std::move(action));
  }

  void AddWeight(size_t s) {
    const SegmentSpec& spec = layout_.segments[s];
    Action action = NewAction(ActionKind::backward_weight, s, spec.backward_weight_flops);
    AddUse(action, Operand::input, Input(s), Access::read);
    AddUse(action, Operand::saved, t_->saved[s], Access::read);
    AddUse(action, Operand::carried, t_->carried[s], Access::read);
    AddUse(action, Operand::output_grad, t_->output_grad[s], Access::read);
    AddOwnBuffer(plan_, action, Operand::scratch, BufferKind::scratch, Name("scratch.backward_weight", s),
                 spec.backward_weight_scratch);
    plan_.actions.push_back(std::move(action));
  }

  /// Between chunk `boundary` and the next, if they are on two stages: its Send, its Receive, or neither, as the plan's
  /// stage has part in it.
  void AddMessage(int boundary, bool gradient) {
    const Channel channel = ChannelOf(shape_, boundary, gradient);
    const int stage = plan_.options.pipeline.stage;
    if (channel.from == channel.to || (channel.from != stage && channel.to != stage)) return;
    const size_t s = static_cast<size_t>(chunks_[static_cast<size_t>(boundary)].end - 1);
    const bool sends = channel.from == stage;
    std::vector<int>& buffers = gradient ? t_->output_grad : t_->output;
    Action message = NewAction(sends ? ActionKind::send : ActionKind::receive, s, 0);
    if (!sends) buffers[s] = gradient ? NewOutputGrad(s) : NewOutput(s);
    message.stream = sends ? channel.send : channel.receive;
    message.peer = sends ? channel.to : channel.from;
    message.gradient = gradient;
    message.bytes = plan_.buffers[buffers[s]].bytes;
    message.uses = {{sends ? Operand::from : Operand::to, 0, buffers[s], sends ? Access::read : Access::write}};
    plan_.actions.push_back(std::move(message));
  }

  const ModelLayout& layout_;
  Plan& plan_;
  const ScheduleShape shape_;
  const std::vector<Chunk> chunks_;
  std::vector<Tensors> tensors_;
  int micro_batch_ = 0;
  Tensors* t_ = nullptr;  // of that micro-batch
};

}  // namespace

void OrderCompute(const ModelLayout& layout, Plan& plan) {
  if (MicroBatchesOf(plan.options) > 0) ComputeOrder(layout, plan).Run();
}

}  // namespace ds
