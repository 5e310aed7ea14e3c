// The GPUs of this node, and which of them each worker sees.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/base/nvml.h"

namespace deepshard::v1 {
class NodeFacts;
class Start;
}  // namespace deepshard::v1

namespace ds {

/// What VisibleGpus() found, and the driver, into the node's facts.
void TellGpus(const std::vector<GpuFacts>& gpus, deepshard::v1::NodeFacts& facts);

/// A worker's GPU and how it finds it.
struct WorkerGpu {
  std::string visible;  ///< for CUDA_VISIBLE_DEVICES
  int place = 0;        ///< of its GPU in `visible`
  std::string pci;
};

/// By rank, of those that have one. All see the GPUs of all of the node's workers, in the order of ranks, so that they
/// reach each other's memory; but an instance of a divided GPU is seen alone, for a process can compute on one only.
/// Numbers or UUIDs, as the node's own CUDA_VISIBLE_DEVICES has them. `gpus` in the order that places count in.
std::map<uint32_t, WorkerGpu> GpusOfWorkers(const std::vector<GpuFacts>& gpus, const deepshard::v1::Start& start);

}  // namespace ds
