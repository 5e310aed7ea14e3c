#include "runtime/checkpoint/background_checkpoints.h"

#include <cstring>
#include <utility>

#include "kernels/elementwise.h"
#include "runtime/base/error.h"
#include "runtime/base/failpoint.h"
#include "runtime/base/stacks.h"

namespace ds {

BackgroundCheckpoints::BackgroundCheckpoints(Options options, Communicator& control)
    : options_(std::move(options)), control_(control), memory_(options_.snapshot_bytes) {
  // Pages that are there already: the first copy is as fast as the others, and memory that the system will not give is
  // missed now.
  if (memory_.bytes() > 0) std::memset(memory_.Bytes(0, memory_.bytes()).data, 0, static_cast<size_t>(memory_.bytes()));
  thread_ = std::thread([this] { Loop(); });
}

BackgroundCheckpoints::~BackgroundCheckpoints() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
    if (busy_) control_.Abort("rank " + std::to_string(control_.rank()) + " ends before the checkpoint is complete");
  }
  changed_.notify_all();
  thread_.join();
}

void BackgroundCheckpoints::Begin(const TrainingState& state, const std::vector<StateSlice>& slices) {
  if (busy()) throw RuntimeError("a checkpoint is begun while another is written");
  Failpoint("checkpoint.snapshot");
  slices_ = slices;
  state_ = state;
  int64_t at = 0;
  for (StateSlice& slice : slices_) {
    const Tensor from = slice.data;
    const Tensor bytes = memory_.Bytes(at, slice.count() * static_cast<int64_t>(sizeof(float)));
    slice.data = Tensor(bytes.data, DType::f32, Shape{slice.count()});
    at += bytes.numel();
    if (slice.read)
      std::exchange(slice.read, nullptr)(0, slice.data);
    else if (from.device.kind == DeviceKind::cpu)
      Cast(options_.kernel, from, slice.data);  // with all threads
    else
      CopyNow(slice.gpu, from, slice.data);
    slice.gpu = nullptr;
  }
  {
    std::lock_guard lock(mutex_);
    busy_ = true;
  }
  changed_.notify_all();
}

bool BackgroundCheckpoints::busy() const {
  std::lock_guard lock(mutex_);
  return busy_;
}

void BackgroundCheckpoints::Wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !busy_; });
  if (error_) std::rethrow_exception(error_);
}

std::optional<BackgroundCheckpoints::Written> BackgroundCheckpoints::TakeWritten() {
  std::lock_guard lock(mutex_);
  return std::exchange(written_, std::nullopt);
}

void BackgroundCheckpoints::Loop() {
  const StackWitness witness("checkpoints in the background");
  SetFailpointScope(control_.rank(), options_.attempt);
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return busy_ || ending_; });
    if (!busy_) return;
    lock.unlock();
    std::optional<Written> written;
    std::exception_ptr error;
    try {
      const std::string folder = WriteCheckpoint(options_.root, state_, slices_, options_.keep, control_);
      written = Written{state_.step, folder};
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (written) written_ = written;
    if (error) {
      error_ = error;
      failed_ = true;
    }
    busy_ = false;
    changed_.notify_all();
    if (ending_) return;
  }
}

}  // namespace ds
