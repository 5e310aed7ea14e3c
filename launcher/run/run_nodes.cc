#include "launcher/run/run_nodes.h"

#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "launcher/job/bind.h"
#include "launcher/nodes/node_report.h"
#include "launcher/nodes/preflight_needs.h"
#include "launcher/nodes/reachability.h"
#include "runtime/base/error.h"
#include "runtime/base/random.h"
#include "runtime/base/text.h"

namespace ds {
namespace {

namespace pb = ::deepshard::v1;
namespace fs = std::filesystem;

constexpr const char* kTokenFile = ".token";

}  // namespace

std::optional<Cause> RunNodes::BringUp() {
  const std::string token = RandomHex(16);
  const fs::path token_file = output_.directory().path() / kTokenFile;
  output_.directory().Write(kTokenFile, token);
  agents_.SetToken(token_file.string(), token);
  std::optional<Cause> trouble = agents_.BringUp();
  if (trouble && trouble->kind == "preflight") {
    for (const Cause& found : agents_.troubles()) output_.Record("preflight", found.host, -1, found.message);
  }
  if (!trouble) trouble = Check();
  std::error_code ignored;
  fs::remove(token_file, ignored);
  if (trouble) return trouble;
  shares_ = ShareMachines(job_.hosts, agents_.facts());
  if (std::string why = CannotBind(job_, shares_); !why.empty()) output_.Record("affinity", "", -1, why);
  return std::nullopt;
}

std::optional<Cause> RunNodes::Check() {
  const PreflightNeeds needs = NeedsOf(job_, output_.directory().path().string());
  const auto& skip = needs.skip;
  ProbeResults probed;
  ChooseAddresses();
  if (!data_network_.troubles.empty())
    probed.outcomes = OutcomesOf(data_network_, job_.hosts);
  else if (job_.hosts.size() > 1 && std::find(skip.begin(), skip.end(), "reachability") == skip.end())
    probed =
        ProbeNodes(agents_, job_.hosts.size(), [this](uint32_t node) { return data_network_.nodes[node].address; });
  if (probed.cause) return probed.cause;
  const auto results = JudgeNodes(job_.hosts, agents_.facts(), agents_.clock_offsets(), probed.outcomes, needs);
  checks_ = results;
  output_.Guarded([&] {
    for (uint32_t node = 0; node < job_.hosts.size(); ++node) WriteReport(node, "");
  });
  if (!skip.empty()) {
    output_.record().SetSkippedChecks(skip);
    output_.Record("preflight_skipped", "", -1, "checks that were not made: " + Join(skip, ", "));
  }
  std::optional<Cause> cause;
  for (size_t node = 0; node < results.size(); ++node) {
    for (const CheckResult& result : results[node]) {
      if (result.status != CheckStatus::failed && result.status != CheckStatus::warning) continue;
      const bool failed = result.status == CheckStatus::failed;
      const std::string& host = job_.hosts[node].host;
      const std::string text = result.name + " on " + host + ": " + result.text;
      output_.RecordQuietly(failed ? "preflight" : "preflight_warning", host, -1, text);
      if (failed && !cause) cause = Cause{"preflight", host, -1, 0, static_cast<int>(ExitCode::preflight), text};
    }
  }
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0 && std::find(skip.begin(), skip.end(), "open-files") == skip.end()) {
    if (std::string why = LauncherFilesTrouble(job_.world(), job_.hosts.size(), files.rlim_max); !why.empty()) {
      output_.Record("preflight", "", -1, "open-files: " + why);
      if (!cause) cause = Cause{"preflight", "", -1, 0, static_cast<int>(ExitCode::preflight), "open-files: " + why};
    }
  }
  const std::vector<std::string> lines = PreflightLines(job_.hosts, results);
  for (const std::string& line : lines) output_.screen().Notice(line);
  if (!cause && !data_network_.troubles.empty()) {  // its check is skipped, and ranks have no address all the same
    const PreflightTrouble& first = data_network_.troubles[0];
    cause = Cause{"preflight", first.host, -1, 0, static_cast<int>(ExitCode::preflight), first.message};
  }
  if (lines.empty() && !cause) output_.screen().Notice(PreflightSummary(results));
  return cause;
}

/// Nodes that have no address of the wanted network fail the check `reachability`.
void RunNodes::ChooseAddresses() {
  const std::string& wanted = job_.spec.launch.interface;
  data_network_ = ChooseDataNetwork(job_.hosts, agents_.facts(), wanted, agents_.OnThisMachine());
  if (!data_network_.troubles.empty() || (agents_.OnThisMachine() && wanted == "auto")) return;
  output_.Record("network", "", -1,
                 "control: " + agents_.network().Reach() + " (" + agents_.network().reason +
                     "); data: " + data_network_.Text(job_.hosts));
}

void RunNodes::WriteReport(uint32_t node, const std::string& affinity) {
  NodeReport report{agents_.host(node), agents_.facts()[node], agents_.clock_offsets()[node], affinity, {}};
  if (node < checks_.size()) report.checks = checks_[node];
  output_.directory().Write("report/" + report.host + ".json", ToJson(report) + "\n");
}

bool RunNodes::OnGpus() const {
  return !job_.foreign() && job_.spec.training.device != DeviceChoice::cpu && agents_.facts()[0].gpus_size() > 0;
}

PlannedRoles RunNodes::PlansFor(const Job& job) const {
  const std::vector<int> nodes = job.Nodes();
  std::map<std::string, int> workers;
  for (const RankEntry& rank : job.ranks) ++workers[agents_.facts()[static_cast<size_t>(rank.node)].boot_id()];
  int64_t host = INT64_MAX, gpu = INT64_MAX;
  for (int node : nodes) {
    const pb::NodeFacts& facts = agents_.facts()[static_cast<size_t>(node)];
    host = std::min(host, facts.memory() / workers[facts.boot_id()]);
    for (const pb::NodeFacts::Gpu& one : facts.gpus()) gpu = std::min<int64_t>(gpu, one.memory_free());
  }
  return OnGpus() ? PlanRoles(job, TierRoom(gpu, host), DeviceKind::cuda)
                  : PlanRoles(job, TierRoom(host), DeviceKind::cpu);
}

}  // namespace ds
