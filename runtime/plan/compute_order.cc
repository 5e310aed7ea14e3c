// The forward and backward passes of every micro-batch in their order, with the activations that tie them together.
//
// One micro-batch after another, each forward and then backward (1F1B of a pipeline of one stage): at any time the
// activations of one micro-batch are alive.
#include "runtime/plan/passes.h"

namespace ds {
namespace {

class ComputeOrder {
 public:
  ComputeOrder(const ModelLayout& layout, Plan& plan) : layout_(layout), plan_(plan) {}

  void Add(int64_t micro_batch) {
    micro_batch_ = static_cast<int>(micro_batch);
    const size_t n = layout_.segments.size();
    output_.assign(n, -1);
    saved_.assign(n, -1);
    for (size_t s = 0; s < n; ++s) AddForward(s);
    if (!plan_.options.training) return;
    int output_grad = -1;
    for (size_t s = n; s-- > 0;) output_grad = AddBackward(s, output_grad);
  }

 private:
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
  int Input(size_t segment) const { return segment == 0 ? -1 : output_[segment - 1]; }

  void AddForward(size_t s) {
    const SegmentSpec& spec = layout_.segments[s];
    Action action = NewAction(ActionKind::forward, s, spec.forward_flops);
    output_[s] = NewBuffer("act", BufferKind::activation, s, LayOut(spec.output));
    saved_[s] = NewBuffer("saved", BufferKind::saved, s, LayOut(spec.saved));
    AddUse(action, Operand::input, Input(s), Access::read);
    AddUse(action, Operand::output, output_[s], Access::write);
    AddUse(action, Operand::saved, saved_[s], Access::write);
    AddOwnBuffer(plan_, action, Operand::scratch, BufferKind::scratch, Name("scratch.forward", s),
                 spec.forward_scratch);
    plan_.actions.push_back(std::move(action));
  }

  /// Returns the gradient of the segment's input: the output gradient of the one before.
  int AddBackward(size_t s, int output_grad) {
    const SegmentSpec& spec = layout_.segments[s];
    const int carried = NewBuffer("carried", BufferKind::carried, s, LayOut(spec.carried));
    int input_grad = -1;
    if (s > 0) {
      Action action = NewAction(ActionKind::backward_input, s, spec.backward_input_flops);
      input_grad = NewBuffer("dact", BufferKind::activation_grad, s - 1, LayOut(layout_.segments[s - 1].output));
      AddUse(action, Operand::input, Input(s), Access::read);
      AddUse(action, Operand::saved, saved_[s], Access::read);
      AddUse(action, Operand::output_grad, output_grad, Access::read);
      AddUse(action, Operand::input_grad, input_grad, Access::write);
      AddUse(action, Operand::carried, carried, Access::write);
      AddOwnBuffer(plan_, action, Operand::scratch, BufferKind::scratch, Name("scratch.backward_input", s),
                   spec.backward_input_scratch);
      plan_.actions.push_back(std::move(action));
    }
    Action action = NewAction(ActionKind::backward_weight, s, spec.backward_weight_flops);
    AddUse(action, Operand::input, Input(s), Access::read);
    AddUse(action, Operand::saved, saved_[s], Access::read);
    AddUse(action, Operand::carried, carried, Access::read);
    AddUse(action, Operand::output_grad, output_grad, Access::read);
    AddOwnBuffer(plan_, action, Operand::scratch, BufferKind::scratch, Name("scratch.backward_weight", s),
                 spec.backward_weight_scratch);
    plan_.actions.push_back(std::move(action));
    return input_grad;
  }

  const ModelLayout& layout_;
  Plan& plan_;
  int micro_batch_ = 0;
  std::vector<int> output_, saved_;  // of a segment, in this micro-batch
};

}  // namespace

void OrderCompute(const ModelLayout& layout, Plan& plan) {
  ComputeOrder order(layout, plan);
  for (int64_t m = 0; m < MicroBatchesOf(plan.options); ++m) order.Add(m);
}

}  // namespace ds
