// Which of the hostfile's hosts and slots a job takes: DeepSpeed's include and exclude filters, --num-nodes,
// --num-gpus.
//
//     NAME[:SLOT[,SLOT...]][@NAME...]      worker-0@worker-1:0,2     [::1]:0@10.0.0.2
//
// A bare host means all its slots. An IPv6 address goes in brackets. A host named twice adds up.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/job/hostfile.h"

namespace ds {

struct HostFilter {
  std::optional<std::string> include;
  std::optional<std::string> exclude;
  std::optional<int> num_nodes;  ///< the first N hosts
  std::optional<int> num_gpus;   ///< the first N slots of each host
};

/// The hosts that are left, in the hostfile's order, slots ascending; hosts without slots are dropped. Throws
/// UsageError naming flag, column, reason and remedy: an unknown host or slot, an empty part, nothing left, include
/// with exclude, either with num_nodes or num_gpus, more nodes or GPUs than there are.
std::vector<HostSlots> ApplyFilters(std::vector<HostSlots> hosts, const HostFilter& filter);

}  // namespace ds
