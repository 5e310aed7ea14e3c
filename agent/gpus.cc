#include "agent/gpus.h"

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "proto/deepshard.pb.h"
#include "runtime/base/visible_gpus.h"

namespace ds {

namespace pb = ::deepshard::v1;

void TellGpus(const std::vector<GpuFacts>& gpus, pb::NodeFacts& facts) {
  facts.set_gpu_driver(GpuDriverVersion());
  for (const GpuFacts& gpu : gpus) {
    auto* fact = facts.add_gpus();
    fact->set_index(static_cast<uint32_t>(gpu.index));
    fact->set_name(gpu.name);
    fact->set_uuid(gpu.uuid);
    fact->set_memory(gpu.memory);
    fact->set_memory_free(gpu.memory_free);
  }
}

std::map<uint32_t, WorkerGpu> GpusOfWorkers(const std::vector<GpuFacts>& gpus, const pb::Start& start) {
  const char* list = std::getenv("CUDA_VISIBLE_DEVICES");
  const std::optional<std::string_view> given = list ? std::optional<std::string_view>(list) : std::nullopt;
  std::map<uint32_t, WorkerGpu> workers;
  std::vector<GpuFacts> used;
  for (const pb::RankPlace& place : start.ranks()) {
    if (place.gpu() < 0 || place.gpu() >= static_cast<int>(gpus.size())) continue;
    const GpuFacts& gpu = gpus[static_cast<size_t>(place.gpu())];
    workers[place.rank()] = {VisibleList({gpu}, given), static_cast<int>(used.size()), gpu.pci};
    used.push_back(gpu);
  }
  const bool alone = std::any_of(used.begin(), used.end(), [](const GpuFacts& gpu) { return gpu.instance; });
  const std::string all = VisibleList(used, given);
  for (auto& [rank, worker] : workers) {
    if (alone)
      worker.place = 0;
    else
      worker.visible = all;
  }
  return workers;
}

}  // namespace ds
