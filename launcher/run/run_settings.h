// What a job says of its agents and of how it ends, as those take it who look after that.
#pragma once

#include <string>
#include <vector>

#include "launcher/control/agents.h"
#include "launcher/job/job.h"
#include "launcher/run/job_monitor.h"

namespace ds {

Agents::Options AgentOptionsOf(const Job& job);

/// `sees_agents_end`: whether the bootstrap tells when an agent's process ends. Without `refit`.
MonitorSettings MonitorSettingsOf(const Job& job, bool sees_agents_end);
std::vector<MonitorRank> MonitorRanksOf(const Job& job);
std::vector<std::string> HostNamesOf(const Job& job);

}  // namespace ds
