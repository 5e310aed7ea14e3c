// Whether nodes reach each other where their workers' data connections will be: before workers start, each node listens
// there, and the others dial it.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launcher/control/agents.h"
#include "launcher/nodes/data_network.h"
#include "launcher/nodes/preflight.h"

namespace ds {

/// The nodes that node `index` of `count` dials: all others of up to kAllPairs nodes; of more, those at distances 1, 2,
/// 4, ..., so that every node is dialled and dials, and log2(count) connections a node are made.
inline constexpr size_t kAllPairs = 16;
std::vector<uint32_t> NodesToDial(size_t index, size_t count);

/// Seconds for all connections together; what has not answered by then is not reached.
inline constexpr double kProbeSeconds = 5;

/// Every agent has joined; none is asked anything else meanwhile. `address_of`: where a node's data connections bind.
/// One outcome a node; the cause where the job ends meanwhile (a signal, an agent that is lost).
struct ProbeResults {
  std::vector<ProbeOutcome> outcomes;
  std::optional<Cause> cause;
};
ProbeResults ProbeNodes(Agents& agents, size_t nodes, const std::function<std::string(uint32_t)>& address_of);

/// Where no connections can be tried: what stands against each node's address.
std::vector<ProbeOutcome> OutcomesOf(const DataNetwork& network, const std::vector<HostSlots>& hosts);

}  // namespace ds
