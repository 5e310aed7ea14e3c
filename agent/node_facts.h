// What a node has: reported to the launcher when the agent joins, compared between nodes, kept in the run directory.
#pragma once

#include <cstdint>
#include <string>

namespace deepshard::v1 {
class Bootstrap;
class NodeFacts;
}  // namespace deepshard::v1

namespace ds {

/// Everything of NodeFacts but `address`; makes the node's part of the preflight too (agent/preflight).
void CollectNodeFacts(const deepshard::v1::Bootstrap& bootstrap, deepshard::v1::NodeFacts& facts);

/// Memory of a process in bytes (resident); 0 when it is gone.
int64_t ResidentBytes(int pid);

}  // namespace ds
