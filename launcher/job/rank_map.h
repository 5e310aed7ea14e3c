// Where ranks are placed: in the hostfile's order, a host's slots in order.
#pragma once

#include <string>
#include <vector>

#include "proto/deepshard.pb.h"
#include "runtime/job/hostfile.h"
#include "runtime/job/job_spec.h"

namespace ds {

struct RankEntry {
  int rank = 0;
  int node = 0;        ///< index in the list of hosts
  int slot = 0;        ///< as the hostfile numbers them
  int local_rank = 0;  ///< 0, 1, ... on its node
};

std::vector<RankEntry> MapRanks(const std::vector<HostSlots>& hosts);
/// On some of the hosts alone: `nodes` are indices of `hosts`.
std::vector<RankEntry> MapRanks(const std::vector<HostSlots>& hosts, const std::vector<int>& nodes);

/// What one node's agent is told about its workers.
struct NodeShare {
  int threads = 1;    ///< of CPU, a worker: agents on one machine share its cores, every worker has at least one
  int first_gpu = 0;  ///< agents on one machine share out its GPUs in order
  bool alone = true;  ///< no other agent of the job is on its machine
};

/// By node. `facts` in the order of `hosts`; nodes with the same boot id are one machine.
std::vector<NodeShare> ShareMachines(const std::vector<HostSlots>& hosts,
                                     const std::vector<deepshard::v1::NodeFacts>& facts);

/// What stands against running, one sentence, and the node that it is about.
struct PreflightTrouble {
  std::string host, message;
};

}  // namespace ds
