#include "runtime/exec/executor.h"

#include "runtime/exec/gpu_executor.h"
#include "runtime/exec/host_executor.h"

namespace ds {

Communicators Communicators::Make(const CommunicatorFactory& host, bool background_checkpoints,
                                  const CommunicatorFactory& device) {
  Communicators made;
  made.control = host("control");
  if (background_checkpoints) made.checkpoint = host("checkpoint");
  const CommunicatorFactory& of_tensors = device ? device : host;
  made.gather = of_tensors("gather");
  made.reduce = of_tensors("reduce");
  if (device) made.sums = device("sums");
  return made;
}

void Communicators::Abort(const std::string& reason) noexcept {
  for (Communicator* communicator : {control.get(), gather.get(), reduce.get(), sums.get(), checkpoint.get()})
    if (communicator) communicator->Abort(reason);
}

std::unique_ptr<Executor> MakeExecutor(const ExecutorContext& context) {
  if (context.gpu) return std::make_unique<GpuExecutor>(context);
  return std::make_unique<HostExecutor>(context);
}

}  // namespace ds
