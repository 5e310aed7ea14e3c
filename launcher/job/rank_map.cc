#include "launcher/job/rank_map.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace ds {
namespace {

namespace pb = ::deepshard::v1;

int Workers(const HostSlots& host) { return static_cast<int>(host.slots.size()); }

/// One past the highest slot: how many GPUs of the machine belong to this host.
int SlotSpan(const HostSlots& host) { return host.slots.empty() ? 0 : host.slots.back() + 1; }

}  // namespace

std::vector<RankEntry> MapRanks(const std::vector<HostSlots>& hosts) {
  std::vector<int> nodes(hosts.size());
  std::iota(nodes.begin(), nodes.end(), 0);
  return MapRanks(hosts, nodes);
}

std::vector<RankEntry> MapRanks(const std::vector<HostSlots>& hosts, const std::vector<int>& nodes) {
  std::vector<RankEntry> ranks;
  for (int node : nodes) {
    int local_rank = 0;
    for (int slot : hosts[static_cast<size_t>(node)].slots) {
      ranks.push_back({static_cast<int>(ranks.size()), node, slot, local_rank++});
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

}  // namespace ds
