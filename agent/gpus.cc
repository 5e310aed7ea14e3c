#include "agent/node_facts.h"
#include "proto/deepshard.pb.h"
#include "runtime/base/nvml.h"

namespace ds {

void CollectGpus(deepshard::v1::NodeFacts& facts) {
  facts.set_gpu_driver(GpuDriverVersion());
  for (const GpuFacts& gpu : VisibleGpus()) {
    auto* fact = facts.add_gpus();
    fact->set_index(static_cast<uint32_t>(gpu.index));
    fact->set_name(gpu.name);
    fact->set_uuid(gpu.uuid);
    fact->set_memory(gpu.memory);
    fact->set_memory_free(gpu.memory_free);
  }
}

}  // namespace ds
