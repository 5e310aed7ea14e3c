#include "runtime/worker/standalone/place.h"

#include <charconv>
#include <string_view>

#include "runtime/base/error.h"

namespace ds {
namespace {

int Number(const Variable& variable, const char* name, int least) {
  const char* text = variable(name);
  if (!text) throw UsageError(std::string("the environment has no ") + name + ", which tells this worker its place");
  const std::string_view digits = text;
  int value = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size() || value < least)
    throw UsageError(std::string(name) + "=" + text + ": expected a number from " + std::to_string(least));
  return value;
}

/// Tasks of node `node` in SLURM's list: "4(x2),3".
int TasksOfNode(std::string_view list, int node) {
  const std::string whole(list);
  while (!list.empty()) {
    int tasks = 0, times = 1;
    auto [end, error] = std::from_chars(list.data(), list.data() + list.size(), tasks);
    if (error != std::errc()) break;
    list.remove_prefix(static_cast<size_t>(end - list.data()));
    if (list.starts_with("(x")) {
      auto [after, wrong] = std::from_chars(list.data() + 2, list.data() + list.size(), times);
      if (wrong != std::errc()) break;
      list.remove_prefix(static_cast<size_t>(after - list.data()));
      if (!list.starts_with(")")) break;
      list.remove_prefix(1);
    }
    if (node < times) return tasks;
    node -= times;
    if (!list.empty() && list[0] != ',') break;
    if (!list.empty()) list.remove_prefix(1);
  }
  throw UsageError("SLURM_STEP_TASKS_PER_NODE=" + whole + ": no number of tasks of this node in it");
}

void Check(const Place& place, const char* rank, const char* size) {
  if (place.rank < place.size && place.local_rank < place.local_size && place.local_size <= place.size) return;
  throw UsageError(std::string("the environment contradicts itself: ") + rank + " " + std::to_string(place.rank) +
                   " and " + size + " " + std::to_string(place.size) + ", on this node " +
                   std::to_string(place.local_rank) + " of " + std::to_string(place.local_size));
}

std::string Text(const Variable& variable, const char* name) {
  const char* text = variable(name);
  return text ? text : "";
}

}  // namespace

Place PlaceFromEnvironment(const Variable& variable) {
  Place place;
  if (variable("OMPI_COMM_WORLD_SIZE")) {
    place.rank = Number(variable, "OMPI_COMM_WORLD_RANK", 0);
    place.size = Number(variable, "OMPI_COMM_WORLD_SIZE", 1);
    place.local_rank = Number(variable, "OMPI_COMM_WORLD_LOCAL_RANK", 0);
    place.local_size = Number(variable, "OMPI_COMM_WORLD_LOCAL_SIZE", 1);
    place.mpi = true;
    place.from = "mpirun";
    place.launch = "mpi-" + Text(variable, "PMIX_NAMESPACE");
    Check(place, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
    return place;
  }
  if (variable("SLURM_STEP_ID") && variable("SLURM_PROCID") && variable("SLURM_STEP_NUM_TASKS")) {
    place.rank = Number(variable, "SLURM_PROCID", 0);
    place.size = Number(variable, "SLURM_STEP_NUM_TASKS", 1);
    place.local_rank = Number(variable, "SLURM_LOCALID", 0);
    place.local_size =
        place.size == 1 ? 1
                        : TasksOfNode(Text(variable, "SLURM_STEP_TASKS_PER_NODE"), Number(variable, "SLURM_NODEID", 0));
    place.mpi = variable("PMIX_RANK") != nullptr;  // srun --mpi=pmix
    place.from = "srun";
    place.launch = "slurm";
    for (const char* name :
         {"SLURM_CLUSTER_NAME", "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT", "SLURM_STEP_LAUNCHER_PORT"})
      place.launch += "-" + Text(variable, name);
    Check(place, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS");
    return place;
  }
  for (const char* name : {"PMI_RANK", "MV2_COMM_WORLD_RANK", "PMIX_RANK"}) {
    if (variable(name))
      throw UsageError(std::string("this worker was started by an MPI launcher that it does not know (") + name +
                       " is set): use mpirun of Open MPI, srun, or ds-launch");
  }
  return place;
}

}  // namespace ds
