#include "runtime/comm/nccl/nccl_handle.h"

#include <exception>
#include <string>
#include <utility>

#include "runtime/base/log.h"

namespace ds {

std::optional<ncclResult_t> NcclHandle::State() {
  return Call([](ncclComm_t& comm) {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(comm, &state);
    return asked == ncclSuccess ? state : asked;
  });
}

void NcclHandle::Abort() noexcept { End(ncclCommAbort); }

bool NcclHandle::Close() noexcept {
  End(ncclCommDestroy);
  std::unique_lock lock(mutex_);  // Abort may still be starting the thread
  if (!end_.joinable()) return true;
  lock.unlock();
  if (end_done_.wait_for(std::chrono::seconds(5)) == std::future_status::ready) {
    end_.join();
    return true;
  }
  LogWarning("NCCL: a communicator did not end within 5 s and is left behind");
  end_.detach();
  return false;
}

void NcclHandle::End(ncclResult_t (*end)(ncclComm_t)) noexcept {
  std::lock_guard lock(mutex_);
  if (std::exchange(ended_, true) || !comm_) return;
  // NCCL sets the device itself, after it has told the kernels to end: before that, CUDA may not answer.
  const auto run = [end, comm = std::exchange(comm_, nullptr)](std::promise<void> done) {
    if (const ncclResult_t result = end(comm); result != ncclSuccess)
      LogWarning(std::string("NCCL: ending a communicator: ") + ncclGetErrorString(result));
    done.set_value();
  };
  std::promise<void> done;
  end_done_ = done.get_future();
  try {
    end_ = std::thread(run, std::move(done));
  } catch (const std::exception&) {  // no more threads
    run(std::promise<void>());
  }
}

}  // namespace ds
