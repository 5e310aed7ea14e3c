// SLURM's compact notations: lists of nodes ("gpu[01-16,20],login1") and counts a node ("8(x16),4").
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ds {

/// The nodes of a list as SLURM writes it, in its order: names separated by commas; brackets hold numbers and ranges of
/// numbers, whose leading zeros are kept; a name may have several brackets (the last one runs fastest) and text behind
/// them. Throws UsageError "name:column: reason" for anything else, an empty list, a node that is there twice, a name
/// that begins with '-', and more than 65536 nodes; `name` says where the text comes from.
std::vector<std::string> ExpandNodeList(std::string_view text, const std::string& name);

/// The counts of a list like "2(x3),1": 2, 2, 2, 1. Throws UsageError as above: other text, counts of zero or beyond
/// 65536, more than 65536 of them.
std::vector<int> ExpandCounts(std::string_view text, const std::string& name);

/// GPUs of each node of a job, from what `scontrol --details show job` prints.
struct NodeGpus {
  std::string node;
  int gpus = 0;
};
/// A node without GPUs has 0. Lines of other shapes are passed over. Throws UsageError as ExpandNodeList.
std::vector<NodeGpus> GpusOfJobDetails(std::string_view text, const std::string& name);

/// The number of GPUs in what SLURM writes for a node: "4", "a100:4", "a100:2,v100:2", "gpu:a100:4(IDX:0-3)". -1: other
/// text.
int CountOfGpus(std::string_view text);

}  // namespace ds
