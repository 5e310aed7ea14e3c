#include "launcher/run/start_message.h"

#include "launcher/job/bind.h"

namespace ds {
namespace {

namespace pb = ::deepshard::v1;

/// As torchrun counts them: of any cause.
int64_t MostRestarts(const JobSpec& spec) {
  const RestartBudgets& budgets = spec.launch.restarts;
  return budgets.by_cause ? budgets.worker + budgets.no_progress + budgets.node.value_or(0) : budgets.any;
}

void AddVariable(pb::Start& start, const std::string& name, const std::string& value) {
  pb::EnvironmentVariable* variable = start.add_environment();
  variable->set_name(name);
  variable->set_value(value);
}

}  // namespace

void FillStart(const Job& job, const JoinedNodes& nodes, const RunDirectory& directory, uint32_t node, size_t group,
               const std::string& resume, pb::Start& start) {
  const auto first = static_cast<uint32_t>(job.ranks[0].node);
  const NodeShare& share = nodes.shares[node];
  const bool gpus = nodes.facts[node].gpus_size() > 0 && job.spec.training.device != DeviceChoice::cpu;
  for (const RankEntry& rank : job.ranks) {
    if (rank.node != static_cast<int>(node)) continue;
    pb::RankPlace* place = start.add_ranks();
    place->set_rank(static_cast<uint32_t>(rank.rank));
    place->set_local_rank(static_cast<uint32_t>(rank.local_rank));
    place->set_slot(static_cast<uint32_t>(rank.slot));
    place->set_gpu(gpus ? share.first_gpu + rank.slot : -1);
  }
  start.set_world_size(static_cast<uint32_t>(job.world()));
  start.set_node_count(static_cast<uint32_t>(job.Nodes().size()));
  start.set_threads(static_cast<uint32_t>(share.threads));
  start.set_interface_address(nodes.network.nodes[node].address);
  start.set_bind(Binds(job, share, start.ranks_size()));
  start.set_log_lines_per_second(job.spec.launch.log_lines_per_second);
  start.set_run_directory(directory.path().string());
  start.set_run_id(directory.run_id());
  start.set_resume(resume);
  if (!job.foreign()) start.set_spec(ToYaml(job.spec));
  if (job.machine) start.set_machine(ToYaml(*job.machine));
  for (const std::string& argument : job.program) start.add_program(argument);
  start.set_working_directory(job.working_directory);
  for (const VariableSource& source : job.variable_sources) {
    for (const auto& [name, value] : source.variables) AddVariable(start, name, value);
  }
  if (job.foreign()) {
    AddVariable(start, "TORCHELASTIC_MAX_RESTARTS", std::to_string(MostRestarts(job.spec)));
    AddVariable(start, "GROUP_RANK", std::to_string(group));
    AddVariable(start, "CROSS_RANK", std::to_string(group));  // DeepSpeed's name for it
  }
  const LaunchOptions& options = job.options;
  start.set_master_address(options.master_address.empty() ? nodes.network.nodes[first].address
                                                          : options.master_address);
  start.set_master_port(options.master_port != 0 ? static_cast<uint32_t>(options.master_port)
                                                 : nodes.facts[first].free_port());
}

}  // namespace ds
