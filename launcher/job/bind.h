// Which nodes' workers get cores and memory of their own (launch.bind); the agents do it (agent/affinity.h).
#pragma once

#include <string>
#include <vector>

#include "launcher/job/job.h"
#include "launcher/job/rank_map.h"

namespace ds {

/// Whether the `workers` of a node are bound. `auto` binds where it can cost nothing: several workers, each with two
/// cores or more (its threads that communicate need a place beside those that compute), and one agent on the machine,
/// which knows of no other's workers.
bool Binds(const Job& job, const NodeShare& share, int workers);

/// What launch.bind asks for and nobody can do; empty: nothing.
std::string CannotBind(const Job& job, const std::vector<NodeShare>& shares);

/// For --dry-run, which has asked no node.
std::string DescribeBind(const Job& job);

}  // namespace ds
