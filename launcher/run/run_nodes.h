// The nodes of a run, from bring-up until workers may start: the preflight, their networks, their memory.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/control/agents.h"
#include "launcher/job/job.h"
#include "launcher/nodes/data_network.h"
#include "launcher/nodes/preflight.h"
#include "launcher/run/run_output.h"
#include "launcher/run/start_message.h"

namespace ds {

class RunNodes {
 public:
  /// All outlive it.
  RunNodes(const Job& job, Agents& agents, RunOutput& output) : job_(job), agents_(agents), output_(output) {}

  /// Brings every agent up and judges all nodes against what the job needs. The cause where it cannot run: the first
  /// node's, of all that are recorded. Throws Error.
  std::optional<Cause> BringUp();

  /// Whether all joined and were looked at, whatever was found.
  bool seen() const { return !checks_.empty(); }

  /// After BringUp.
  JoinedNodes joined() const { return {agents_.facts(), shares_, data_network_}; }

  /// The nodes are of one kind (the preflight sees to it): what the first has, all have.
  bool OnGpus() const;

  /// The plans (PlanRoles) against the memory of the node that has least of it for each worker. Throws UsageError where
  /// they do not fit.
  PlannedRoles PlansFor(const Job& job) const;

  /// report/HOST.json; `affinity`: where the node's workers are, once they are.
  void WriteReport(uint32_t node, const std::string& affinity);

 private:
  std::optional<Cause> Check();
  void ChooseAddresses();

  const Job& job_;
  Agents& agents_;
  RunOutput& output_;
  std::vector<NodeShare> shares_;
  DataNetwork data_network_;
  std::vector<std::vector<CheckResult>> checks_;  ///< of the preflight, by node
};

}  // namespace ds
