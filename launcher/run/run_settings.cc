#include "launcher/run/run_settings.h"

namespace ds {

Agents::Options AgentOptionsOf(const Job& job) {
  Agents::Options options;
  options.bootstrap = job.bootstrap();
  options.settings = BootstrapSettingsOf(job);
  options.hosts = job.hosts;
  options.interface = job.spec.launch.interface;
  options.contain = job.spec.launch.contain;
  options.skip_checks = job.spec.launch.skip_checks;
  return options;
}

MonitorSettings MonitorSettingsOf(const Job& job, bool sees_agents_end) {
  const LaunchConfig& launch = job.spec.launch;
  MonitorSettings settings;
  settings.restarts = launch.restarts;
  settings.grace_seconds = launch.grace_seconds;
  if (job.foreign()) settings.failure_grace_seconds = launch.grace_seconds;
  settings.lease_seconds = launch.lease_seconds;
  settings.suspect_seconds = launch.suspect_seconds;
  settings.progress_seconds = job.foreign() ? 0 : launch.progress_seconds;
  settings.checkpoint_on_signal = job.spec.checkpoint.on_signal;
  settings.sees_agents_end = sees_agents_end;
  settings.programs = job.foreign();
  return settings;
}

std::vector<MonitorRank> MonitorRanksOf(const Job& job) {
  std::vector<MonitorRank> ranks;
  for (const RankEntry& rank : job.ranks) ranks.push_back({rank.node});
  return ranks;
}

std::vector<std::string> HostNamesOf(const Job& job) {
  std::vector<std::string> names;
  for (const HostSlots& host : job.hosts) names.push_back(host.host);
  return names;
}

}  // namespace ds
