#include "launcher/rank_map.h"

#include <algorithm>
#include <cstdint>
#include <map>

namespace ds {
namespace {

namespace pb = ::deepshard::v1;

/// Descriptors an agent needs beside those of its workers, and for each worker: two pipes, a socket, a pidfd, and room.
constexpr uint64_t kAgentFiles = 64, kFilesPerWorker = 8;

int Workers(const HostSlots& host) { return static_cast<int>(host.slots.size()); }

/// One past the highest slot: how many GPUs of the machine belong to this host.
int SlotSpan(const HostSlots& host) { return host.slots.empty() ? 0 : host.slots.back() + 1; }

}  // namespace

std::vector<RankEntry> MapRanks(const std::vector<HostSlots>& hosts) {
  std::vector<RankEntry> ranks;
  for (size_t node = 0; node < hosts.size(); ++node) {
    int local_rank = 0;
    for (int slot : hosts[node].slots) {
      ranks.push_back({static_cast<int>(ranks.size()), static_cast<int>(node), slot, local_rank++});
    }
  }
  return ranks;
}

std::vector<NodeShare> ShareMachines(const std::vector<HostSlots>& hosts, const std::vector<pb::NodeFacts>& facts) {
  std::map<std::string, int> agents, workers, gpus;
  for (size_t i = 0; i < hosts.size(); ++i) {
    ++agents[facts[i].boot_id()];
    workers[facts[i].boot_id()] += Workers(hosts[i]);
  }
  std::vector<NodeShare> shares;
  for (size_t i = 0; i < hosts.size(); ++i) {
    const std::string& machine = facts[i].boot_id();
    shares.push_back({std::max(1, static_cast<int>(facts[i].cores()) / std::max(1, workers[machine])), gpus[machine],
                      agents[machine] == 1});
    gpus[machine] += SlotSpan(hosts[i]);
  }
  return shares;
}

std::vector<PreflightTrouble> CheckNodes(const std::vector<HostSlots>& hosts, const std::vector<pb::NodeFacts>& facts,
                                         const NodeNeeds& needs) {
  std::vector<PreflightTrouble> troubles;
  std::vector<NodeShare> shares = ShareMachines(hosts, facts);
  for (size_t i = 0; i < hosts.size(); ++i) {
    const std::string& host = hosts[i].host;
    int gpus = facts[i].gpus_size(), wanted = shares[i].first_gpu + SlotSpan(hosts[i]);
    if (gpus > 0 && wanted > gpus && needs.device != DeviceChoice::cpu) {
      troubles.push_back({host, host + " has " + std::to_string(gpus) + " GPUs, and its slots need " +
                                    std::to_string(wanted) +
                                    (shares[i].first_gpu > 0 ? " with those of the hosts "
                                                               "before it on the same machine"
                                                             : "") +
                                    ": give it fewer slots, or set training.device: cpu"});
    }
    if (gpus == 0 && needs.device == DeviceChoice::gpu)
      troubles.push_back({host, host + " has no GPU that the agent can see, and training.device is gpu"});
    if (needs.one_device_kind && needs.device == DeviceChoice::automatic && (gpus > 0) != (facts[0].gpus_size() > 0))
      troubles.push_back({host, host + (gpus > 0 ? " has GPUs and " : " has no GPUs and ") + hosts[0].host +
                                    (gpus > 0 ? " has none" : " has some") +
                                    ": ranks compute on one kind of device; set training.device: cpu, or leave out "
                                    "nodes"});
    uint64_t files = kAgentFiles + kFilesPerWorker * hosts[i].slots.size();
    if (facts[i].open_files() < files) {
      troubles.push_back({host, host + " allows " + std::to_string(facts[i].open_files()) +
                                    " open files (hard limit), and " + std::to_string(hosts[i].slots.size()) +
                                    " workers need " + std::to_string(files) + ": raise it (ulimit -Hn, limits.conf)"});
    }
    if (needs.shared_output && !facts[i].token_seen()) {
      troubles.push_back({host, "the output folder is not shared with " + host +
                                    ": checkpoints could not be put together; choose --output on a file system that "
                                    "all nodes share, or set checkpoint.every to -1"});
    }
  }
  return troubles;
}

}  // namespace ds
