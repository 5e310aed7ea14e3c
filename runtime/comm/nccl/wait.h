// How the host waits for a GPU whose work may depend on other ranks.
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <span>
#include <string>

#include "runtime/comm/communicator.h"

namespace ds {

/// Returns once the work before `event` is done. Sleeps between looks, so that no core is kept busy. `communicators`:
/// those whose calls the work may wait for.
///
/// Throws what CheckAsync throws as soon as one of them is broken. When `timeout` passes first, or the GPU reports an
/// error, aborts all of them and throws: CommunicatorAborted with a message that holds `what` ("step 3"), or
/// RuntimeError with CUDA's error. In any case kernels that waited for peers were ended and the GPU was given 5 s to
/// come to rest.
void WaitForEvent(cudaEvent_t event, std::span<Communicator* const> communicators, std::chrono::milliseconds timeout,
                  const std::string& what);

}  // namespace ds
