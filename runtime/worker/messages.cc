#include "runtime/worker/messages.h"

namespace ds {
namespace {

namespace pb = ::deepshard::v1;

template <class Set, class T>
void SetIf(const std::optional<T>& value, Set set) {
  if (value) set(*value);
}

void Fill(const Footprint& footprint, pb::Footprint& out) {
  out.set_step_ms(footprint.step_ms);
  out.set_device_peak(footprint.device_peak);
  out.set_host_peak(footprint.host_peak);
  out.set_file_peak(footprint.file_peak);
  for (const auto& [kind, bytes] : footprint.bytes_moved) (*out.mutable_bytes_moved())[kind] = bytes;
}

}  // namespace

void Fill(const StepRecord& record, pb::StepRecord& out) {
  out.set_step(record.step);
  out.set_attempt(record.attempt);
  out.set_loss(record.loss);
  out.set_grad_norm(record.grad_norm);
  out.set_lr(record.lr);
  out.set_tokens(record.tokens);
  out.set_tokens_per_second(record.tokens_per_second);
  out.set_step_ms(record.step_ms);
  out.set_compute_ms(record.compute_ms);
  out.set_comm_exposed_ms(record.comm_exposed_ms);
  out.set_io_exposed_ms(record.io_exposed_ms);
  out.set_data_ms(record.data_ms);
  out.set_overhead_ms(record.overhead_ms);
  SetIf(record.mfu, [&](double v) { out.set_mfu(v); });
  out.set_peak_device_bytes(record.peak_device_bytes);
  out.set_peak_host_bytes(record.peak_host_bytes);
  out.set_peak_file_bytes(record.peak_file_bytes);
  SetIf(record.validation_loss, [&](double v) { out.set_validation_loss(v); });
  SetIf(record.checkpoint_stall_ms, [&](double v) { out.set_checkpoint_stall_ms(v); });
  SetIf(record.loss_scale, [&](double v) { out.set_loss_scale(v); });
  out.set_skipped(record.skipped);
}

void Fill(const TrainResult& result, pb::WorkerResult& out) {
  out.set_steps(result.steps);
  out.set_final_loss(result.final_loss);
  SetIf(result.validation_loss, [&](double v) { out.set_validation_loss(v); });
  out.set_median_tokens_per_second(result.median_tokens_per_second);
  out.set_stopped(result.stopped);
  out.set_checkpoint(result.checkpoint);
  Fill(result.predicted, *out.mutable_predicted());
  Fill(result.measured, *out.mutable_measured());
}

WorkerAssignment FromMessage(const pb::Assignment& message) {
  WorkerAssignment assignment;
  assignment.rank = static_cast<int>(message.rank());
  assignment.size = static_cast<int>(message.world_size());
  assignment.local_rank = static_cast<int>(message.local_rank());
  assignment.threads = static_cast<int>(message.threads());
  assignment.attempt = message.attempt();
  if (message.has_gpu()) assignment.gpu = static_cast<int>(message.gpu());
  assignment.interface_address = message.interface_address();
  assignment.run_directory = message.run_directory();
  assignment.resume = message.resume();
  assignment.spec = message.spec();
  assignment.machine = message.machine();
  return assignment;
}

}  // namespace ds
