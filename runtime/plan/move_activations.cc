// Keeps activations below the device between the forward pass and the backward pass of their micro-batch.
//
// What a segment wrote in the forward and reads again in the backward (its input, and what it saved) is stored after
// its last use in the forward, and fetched into memory of its own kAhead passes before its first use in the backward:
// while one segment computes, the next one's activations are on their way. What would be needed sooner than that stays.
#include <algorithm>

#include "runtime/plan/moves.h"

namespace ds {
namespace {

constexpr size_t kAhead = 4;  // passes of segments: Recompute, BackwardInput and BackwardWeight of one, and one more

class ActivationMoves {
 public:
  explicit ActivationMoves(Plan& plan) : plan_(plan), insertions_(plan.actions.size()) {
    for (size_t a = 0; a < plan.actions.size(); ++a) {
      const Action& action = plan.actions[a];
      uses_.resize(plan.buffers.size());
      if (action.kind == ActionKind::receive && action.state == StateKind::none)
        uses_[action.uses[0].buffer].segment = action.segment,
        uses_[action.uses[0].buffer].micro_batch = action.micro_batch;
      if (action.kind > ActionKind::backward_weight) continue;
      const size_t pass = passes_.size();
      passes_.push_back(a);
      for (const Use& use : action.uses) {
        const BufferKind kind = plan.buffers[use.buffer].kind;
        if (kind != BufferKind::activation && kind != BufferKind::saved) continue;
        Uses& uses = uses_[use.buffer];
        if (action.kind == ActionKind::forward) {
          uses.last_forward = static_cast<int>(pass);
          if (use.access == Access::write) uses.segment = action.segment, uses.micro_batch = action.micro_batch;
        } else if (uses.first_backward < 0) {
          uses.first_backward = static_cast<int>(pass);
        }
      }
    }
  }

  void Run() {
    const size_t buffers = uses_.size();
    for (size_t b = 0; b < buffers; ++b) {
      const Uses& uses = uses_[b];
      if (uses.last_forward < 0 || uses.first_backward < 0) continue;
      if (uses.first_backward - uses.last_forward <= static_cast<int>(2 * kAhead)) continue;
      Offload(static_cast<int>(b), uses);
    }
    insertions_.Weave(plan_);
  }

 private:
  /// Passes that use a buffer.
  struct Uses {
    int last_forward = -1, first_backward = -1;
    int segment = -1, micro_batch = -1;  // that write it, here or on another stage
  };

  int Copy(int of, Tier tier, const std::string& suffix) {
    Buffer copy = plan_.buffers[of];
    copy.name += suffix;
    copy.tier = tier;
    return AddBuffer(plan_, std::move(copy));
  }

  Action Move(int from, int to, const Uses& uses) const {
    Action move = MoveBetween(plan_, from, to, plan_.buffers[from].bytes);
    move.segment = uses.segment;
    move.micro_batch = uses.micro_batch;
    return move;
  }

  void Offload(int buffer, const Uses& uses) {
    const Tier home = plan_.options.placement.activations;
    const size_t left = passes_[uses.last_forward];
    const size_t wanted = static_cast<size_t>(uses.first_backward);
    int at = Copy(buffer, Tier::host, "@host");
    insertions_.After(left, Move(buffer, at, uses));
    if (home == Tier::file) {
      const int file = Copy(buffer, Tier::file, "@file"), again = Copy(buffer, Tier::host, "@host.again");
      insertions_.After(left, Move(at, file, uses));
      insertions_.Before(passes_[wanted - std::min(wanted, 2 * kAhead)], Move(file, again, uses));
      at = again;
    }
    const int back = Copy(buffer, Tier::device, "@back");
    insertions_.Before(passes_[wanted - kAhead], Move(at, back, uses));
    for (size_t pass = wanted; pass < passes_.size(); ++pass)
      for (Use& use : plan_.actions[passes_[pass]].uses)
        if (use.buffer == buffer) use.buffer = back;
  }

  Plan& plan_;
  Insertions insertions_;
  std::vector<size_t> passes_;  // actions
  std::vector<Uses> uses_;      // of a buffer
};

}  // namespace

void MoveActivations(Plan& plan) {
  if (plan.options.training && plan.options.placement.activations != Tier::device) ActivationMoves(plan).Run();
}

}  // namespace ds
