#include "runtime/plan/plan.h"

#include <algorithm>

namespace ds {

const char* NameOf(ActionKind kind) {
  switch (kind) {
    case ActionKind::forward:
      return "Forward";
    case ActionKind::recompute:
      return "Recompute";
    case ActionKind::backward_input:
      return "BackwardInput";
    case ActionKind::backward_weight:
      return "BackwardWeight";
    case ActionKind::gather:
      return "Gather";
    case ActionKind::release:
      return "Release";
    case ActionKind::reduce:
      return "Reduce";
    case ActionKind::sum_tied:
      return "SumTied";
    case ActionKind::norm:
      return "Norm";
    case ActionKind::optimizer_step:
      return "OptimizerStep";
    case ActionKind::fetch:
      return "Fetch";
    case ActionKind::store:
      return "Store";
    case ActionKind::squares:
      return "Squares";
    case ActionKind::send:
      return "Send";
    case ActionKind::receive:
      return "Receive";
  }
  return "?";
}

const char* NameOf(StreamKind stream) {
  switch (stream) {
    case StreamKind::compute:
      return "compute";
    case StreamKind::gather:
      return "gather";
    case StreamKind::reduce:
      return "reduce";
    case StreamKind::send_next:
      return "send_next";
    case StreamKind::receive_previous:
      return "receive_previous";
    case StreamKind::send_previous:
      return "send_previous";
    case StreamKind::receive_next:
      return "receive_next";
    case StreamKind::tied:
      return "tied";
    case StreamKind::fetch:
      return "fetch";
    case StreamKind::store:
      return "store";
    case StreamKind::read:
      return "read";
    case StreamKind::write:
      return "write";
    case StreamKind::host:
      return "host";
  }
  return "?";
}

const char* NameOf(Tier tier) {
  switch (tier) {
    case Tier::device:
      return "device";
    case Tier::host:
      return "host";
    case Tier::file:
      return "file";
  }
  return "?";
}

const char* NameOf(BufferKind kind) {
  switch (kind) {
    case BufferKind::activation:
      return "activation";
    case BufferKind::activation_grad:
      return "activation_grad";
    case BufferKind::saved:
      return "saved";
    case BufferKind::carried:
      return "carried";
    case BufferKind::scratch:
      return "scratch";
    case BufferKind::gathered:
      return "gathered";
    case BufferKind::gradient:
      return "gradient";
    case BufferKind::workspace:
      return "workspace";
    case BufferKind::staging:
      return "staging";
    case BufferKind::sums:
      return "sums";
    case BufferKind::resident:
      return "resident";
  }
  return "?";
}

const char* NameOf(StateKind state) {
  switch (state) {
    case StateKind::none:
      return "none";
    case StateKind::working:
      return "working";
    case StateKind::master:
      return "master";
    case StateKind::moment1:
      return "moment1";
    case StateKind::moment2:
      return "moment2";
    case StateKind::gradient:
      return "gradient";
  }
  return "?";
}

const char* NameOf(Operand operand) {
  switch (operand) {
    case Operand::input:
      return "input";
    case Operand::output:
      return "output";
    case Operand::output_grad:
      return "output_grad";
    case Operand::input_grad:
      return "input_grad";
    case Operand::saved:
      return "saved";
    case Operand::carried:
      return "carried";
    case Operand::scratch:
      return "scratch";
    case Operand::params:
      return "params";
    case Operand::grads:
      return "grads";
    case Operand::shard:
      return "shard";
    case Operand::whole:
      return "whole";
    case Operand::workspace:
      return "workspace";
    case Operand::state:
      return "state";
    case Operand::from:
      return "from";
    case Operand::to:
      return "to";
    case Operand::sums:
      return "sums";
  }
  return "?";
}

DType DTypeOfState(StateKind state, DType compute) {
  if (state == StateKind::working || compute == DType::f64) return compute;
  return DType::f32;
}

bool HasPending(const Plan& plan) {
  return std::any_of(plan.actions.begin(), plan.actions.end(), [](const Action& action) { return action.pending; });
}

const Use* Action::Find(Operand operand, int index) const {
  for (const Use& use : uses)
    if (use.operand == operand && use.index == index) return &use;
  return nullptr;
}

ReduceWorkspace ReduceWorkspaceOf(int64_t bucket_bytes, int ranks, bool direct, DeviceKind device) {
  ReduceWorkspace w;
  if (ranks == 1) return w;
  // ReduceScatterWorkspace() of runtime/comm, which this wing may not include. NCCL has memory of its own.
  w.communicator_bytes = device == DeviceKind::cpu ? bucket_bytes : 0;
  w.piece_offset = (w.communicator_bytes + 63) / 64 * 64;
  w.piece_bytes = direct ? 0 : bucket_bytes / ranks;
  return w;
}

ResidentIndex IndexResident(const ModelLayout& layout, const Plan& plan) {
  ResidentIndex index;
  index.working.assign(layout.units.size(), -1);
  index.master = index.moment1 = index.moment2 = index.working;
  index.gradient.assign(layout.slots.size(), -1);
  for (size_t b = 0; b < plan.buffers.size(); ++b) {
    const Buffer& buffer = plan.buffers[b];
    if (buffer.kind != BufferKind::resident) continue;
    const int id = static_cast<int>(b);
    switch (buffer.state) {
      case StateKind::none:
        break;
      case StateKind::working:
        index.working[buffer.unit] = id;
        break;
      case StateKind::master:
        index.master[buffer.unit] = id;
        break;
      case StateKind::moment1:
        index.moment1[buffer.unit] = id;
        break;
      case StateKind::moment2:
        index.moment2[buffer.unit] = id;
        break;
      case StateKind::gradient:
        index.gradient[buffer.slot] = id;
        break;
    }
  }
  return index;
}

}  // namespace ds
