#include "runtime/comm/nccl/wait.h"

#include <algorithm>
#include <thread>

namespace ds {
namespace {

using std::chrono::steady_clock;

/// For a GPU to come to rest once the kernels that waited for peers were ended.
constexpr auto kRest = std::chrono::seconds(5);

/// Sleeps for a thirty-second part of what was waited so far, 10 to 500 microseconds: what a wait adds to the time that
/// the GPU takes stays small beside it.
void Sleep(steady_clock::time_point begin) {
  using std::chrono::microseconds;
  const auto waited = std::chrono::duration_cast<microseconds>(steady_clock::now() - begin);
  std::this_thread::sleep_for(std::clamp(waited / 32, microseconds(10), microseconds(500)));
}

void AwaitRest(cudaEvent_t event) {
  const auto begin = steady_clock::now();
  while (cudaEventQuery(event) == cudaErrorNotReady && steady_clock::now() - begin < kRest) Sleep(begin);
}

}  // namespace

void WaitForEvent(cudaEvent_t event, std::span<Communicator* const> communicators, std::chrono::milliseconds timeout,
                  const std::string& what) {
  const auto begin = steady_clock::now();
  const auto abort = [&](const std::string& reason) {
    for (Communicator* communicator : communicators) communicator->Abort(reason);
  };
  try {
    for (;;) {
      const cudaError_t status = cudaEventQuery(event);
      if (status != cudaSuccess && status != cudaErrorNotReady) {
        const std::string error =
            what + ": the GPU reports: " + cudaGetErrorString(status) + " (" + cudaGetErrorName(status) + ")";
        abort(error);
        throw RuntimeError(error);
      }
      const bool late = status != cudaSuccess && steady_clock::now() - begin > timeout;
      const std::string reason = what + " did not end within " + std::to_string(timeout.count()) + " ms";
      if (late) abort(reason);
      for (Communicator* communicator : communicators) communicator->CheckAsync();
      if (status == cudaSuccess) return;
      if (late) throw CommunicatorAborted(reason);
      Sleep(begin);
    }
  } catch (const Error&) {
    AwaitRest(event);
    throw;
  }
}

}  // namespace ds
