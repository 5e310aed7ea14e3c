// A job on some of its hosts: which of them, at what data-parallel width, so that the global batch stays as it is. Used
// when nodes were lost (launch.min_nodes), and at the start where not all hosts divide the batch. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/job/job.h"

namespace ds {

/// The same train_batch_size for `width` data-parallel ranks: the micro-batch size as it is, else the largest below it
/// that divides; accumulation follows. nullopt: `width` does not divide train_batch_size.
std::optional<BatchConfig> BatchForWidth(const BatchConfig& batch, int64_t width);

struct NodeFit {
  std::vector<int> nodes;        ///< that the job runs on: indices of job.hosts, in order
  std::vector<RankEntry> ranks;  ///< renumbered
  JobSpec spec;                  ///< with its batch
  std::string text;              ///< "2 of 3 nodes (a, c), 4 ranks, micro-batch 2 x accumulation 4; spare: d"
};

/// The job on the most of the nodes `left` (in order; the last ones become spares) that divide its global batch, but
/// never on fewer than `least`. Throws UsageError with the reason when there is no such width, or the spec refuses it.
NodeFit FitToNodes(const Job& job, const std::vector<int>& left, int64_t least);

}  // namespace ds
