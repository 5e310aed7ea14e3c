// What nodes have, for people and for the run directory, and where nodes differ.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/deepshard.pb.h"

namespace ds {

struct NodeReport {
  std::string host;
  deepshard::v1::NodeFacts facts;
  int64_t clock_offset_ns = 0;  ///< how far the node's clock is ahead of the launcher's
  std::string affinity{};  ///< which cores and memory its workers got; empty: they have not started, or are not bound
};

/// report/HOST.json
std::string ToJson(const NodeReport& report);

/// Several lines a node.
std::string ToText(const NodeReport& report);

/// One line a fact in which nodes differ, naming the values and the hosts that have them; empty: none.
std::vector<std::string> Differences(const std::vector<NodeReport>& reports);

}  // namespace ds
