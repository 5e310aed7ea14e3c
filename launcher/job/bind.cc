#include "launcher/job/bind.h"

#include <algorithm>

namespace ds {
namespace {

constexpr int kFewestThreads = 2;

}  // namespace

bool Binds(const Job& job, const NodeShare& share, int workers) {
  const BindChoice bind = job.spec.launch.bind;
  if (bind == BindChoice::none || !share.alone) return false;
  return bind == BindChoice::cores || (workers > 1 && share.threads >= kFewestThreads);
}

std::string CannotBind(const Job& job, const std::vector<NodeShare>& shares) {
  const bool all = std::all_of(shares.begin(), shares.end(), [](const NodeShare& share) { return share.alone; });
  if (job.spec.launch.bind != BindChoice::cores || all) return "";
  return "workers of agents that share a machine are not bound: no agent knows of another's workers";
}

std::string DescribeBind(const Job& job) {
  std::string text = "Affinity (launch.bind)\n  ";
  switch (job.spec.launch.bind) {
    case BindChoice::none:
      return text + "none: workers may use every core of their node\n";
    case BindChoice::cores:
      return text + "cores: each worker gets cores and memory near its GPU, or a share of its node\n";
    case BindChoice::automatic:
      break;
  }
  return text + "auto: on nodes with several workers and two cores or more for each, as cores does; else none\n";
}

}  // namespace ds
