// What nodes have, for people and for the run directory, and where nodes differ.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launcher/nodes/preflight.h"
#include "proto/deepshard.pb.h"

namespace ds {

struct NodeReport {
  std::string host;
  deepshard::v1::NodeFacts facts;
  int64_t clock_offset_ns = 0;  ///< how far the node's clock is ahead of the launcher's
  std::string affinity{};  ///< which cores and memory its workers got; empty: they have not started, or are not bound
  std::vector<CheckResult> checks{};
};

/// report/HOST.json, one line
std::string ToJson(const NodeReport& report);

/// A fact by the name that people read.
struct NodeFact {
  std::string name, value;
  bool varies = false;  ///< from moment to moment: no difference between nodes
};
/// The same names in the same order whatever the node; a value that it does not have is empty.
std::vector<NodeFact> FactsOf(const NodeReport& report);

/// Nodes side by side, a column for those that are alike, facts that differ marked with `*`; where columns do not fit,
/// what all share and then a row for those that are alike. Facts first, then checks with their times. `columns`: the
/// width there is; `color`: of differences and of what did not pass.
std::string ToTable(const std::vector<NodeReport>& reports, size_t columns, bool color);

/// One line a fact in which nodes differ, naming the values and the hosts that have them; empty: none.
std::vector<std::string> Differences(const std::vector<NodeReport>& reports);

}  // namespace ds
