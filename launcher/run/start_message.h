// What an agent is told when workers start: their ranks and places, the job, the environment.
#pragma once

#include <string>

#include "launcher/job/job.h"
#include "launcher/job/rank_map.h"
#include "launcher/nodes/data_network.h"
#include "proto/deepshard.pb.h"
#include "runtime/run/run_directory.h"

namespace ds {

/// What is known of the nodes once all have joined, by index in the list of hosts.
struct JoinedNodes {
  const std::vector<deepshard::v1::NodeFacts>& facts;
  const std::vector<NodeShare>& shares;
  const DataNetwork& network;
};

/// Fills in `start` for `node`, which has ranks; `group`: its place among those that have. `resume`: a checkpoint's
/// folder; empty: anew.
void FillStart(const Job& job, const JoinedNodes& nodes, const RunDirectory& directory, uint32_t node, size_t group,
               const std::string& resume, deepshard::v1::Start& start);

}  // namespace ds
