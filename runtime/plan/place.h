// Chooses where a job keeps what it left to the planner: device, host or files for optimizer state, parameters and
// activations (`auto`), and how much of the optimizer state goes below the device (`ratio: auto`).
//
// Every combination of places is planned and priced; of those that fit the one with the shortest predicted step is
// taken, so a faster place is left only where it is too small, or where its wire or its arithmetic would hold the step
// up. Of those within 5% of it, the one that moves least. As in ZeRO-Offload and ZeRO-Infinity (Ren et al., Rajbhandari
// et al., 2021), and Twin-Flow's ratio (DeepSpeed-Offload++), but decided from the plan's price.
#pragma once

#include <string>
#include <vector>

#include "runtime/plan/planner.h"
#include "runtime/plan/price.h"

namespace ds {

struct PlacedJob {
  JobSpec spec;                  ///< leaves nothing open
  std::vector<std::string> why;  ///< a line a choice: "offload_optimizer.device: auto is cpu: ..."
};

/// The job with its open placements settled, for `ranks` ranks with `room` each. What is in use of a tier is kept 5% (a
/// device) or 10% (a host) below what the node has; limits that the job names are taken whole. Where nothing fits, the
/// lowest places of all, for CheckFits to refuse with their numbers. A job that leaves nothing open comes back as it
/// is, and nothing is planned.
PlacedJob ChoosePlacement(const JobSpec& spec, int ranks, DeviceKind device, const TierRoom& room,
                          const Machine& machine);

}  // namespace ds
