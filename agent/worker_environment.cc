// The environment of a worker: docs/operations.md, "Programs" and "Environment", has it as tables.
#include <cstdlib>

#include "agent/workers.h"
#include "runtime/base/interface.h"

namespace ds {
namespace {

namespace pb = ::deepshard::v1;

/// Unless the node's own environment has it; launch.env and --export come later and win.
void SetDefault(std::vector<std::string>& environment, const char* name, const std::string& value) {
  if (!std::getenv(name)) SetVariable(environment, name, value);
}

/// The interface that a program's data connections should use; empty where all nodes are one machine.
std::string NetworkOf(const pb::Start& start) {
  const std::string& address = start.interface_address();
  return address.empty() || address.starts_with("127.") || address == "::1" ? "" : InterfaceNameOf(address);
}

}  // namespace

std::vector<std::string> Workers::Environment(const Worker& worker) const {
  const pb::Start& start = setting_.start;
  std::vector<std::string> environment = InheritedEnvironment();
  if (const auto gpu = setting_.gpus.find(worker.place.rank()); gpu != setting_.gpus.end()) {
    SetVariable(environment, "CUDA_VISIBLE_DEVICES", gpu->second.visible);
    SetVariable(environment, "CUDA_DEVICE_ORDER", "PCI_BUS_ID");  // what our numbers count in
  }
  if (foreign()) {
    SetDefault(environment, "OMP_NUM_THREADS", std::to_string(ThreadsOf(worker)));
    SetDefault(environment, "ROLE_NAME", "default");
    const std::string interface = NetworkOf(start);
    if (!interface.empty()) {
      SetDefault(environment, "NCCL_SOCKET_IFNAME", "=" + interface);  // =: this name, and none that begins with it
      SetDefault(environment, "GLOO_SOCKET_IFNAME", interface);
    }
    SetDefault(environment, "TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
  } else if (!std::getenv("OMP_WAIT_POLICY")) {
    // A kernel's threads that spin between parallel regions would take their cores from the threads that communicate.
    // A rank alone has none of these, and waking a sleeping thread costs more than many of its kernels take: its
    // threads spin, but for a millisecond at most (the library's default is many), so that other programs on the same
    // cores cost it a share of them and not a multiple.
    if (start.world_size() > 1)
      SetVariable(environment, "OMP_WAIT_POLICY", "passive");
    else if (!std::getenv("GOMP_SPINCOUNT"))
      SetVariable(environment, "GOMP_SPINCOUNT", "20000");
  }
  for (const auto& variable : start.environment()) SetVariable(environment, variable.name(), variable.value());
  SetVariable(environment, "DS_RUN_ID", start.run_id());
  if (!foreign()) return environment;

  const auto set = [&](std::initializer_list<const char*> names, const std::string& value) {
    for (const char* name : names) SetVariable(environment, name, value);
  };
  set({"RANK", "ROLE_RANK"}, std::to_string(worker.place.rank()));
  set({"WORLD_SIZE", "ROLE_WORLD_SIZE"}, std::to_string(start.world_size()));
  set({"LOCAL_RANK"}, std::to_string(worker.place.local_rank()));
  set({"LOCAL_WORLD_SIZE", "LOCAL_SIZE"}, std::to_string(start.ranks_size()));
  set({"GROUP_WORLD_SIZE", "CROSS_SIZE"}, std::to_string(start.node_count()));
  set({"MASTER_ADDR"}, start.master_address());
  set({"MASTER_PORT"}, std::to_string(start.master_port()));
  set({"TORCHELASTIC_RUN_ID"}, start.run_id());
  set({"TORCHELASTIC_RESTART_COUNT"}, std::to_string(setting_.attempt - 1));
  set({"TORCHELASTIC_USE_AGENT_STORE"}, "False");  // rank 0 serves PyTorch's store itself
  return environment;
}

}  // namespace ds
