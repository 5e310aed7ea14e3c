// A worker's place among ranks that no agent started: what mpirun, or srun, left in the environment.
#pragma once

#include <functional>
#include <string>

namespace ds {

struct Place {
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;  ///< on this node
  bool mpi = false;                    ///< MPI can begin: its launcher is known to Open MPI
  std::string from = "alone";          ///< "mpirun", "srun", "alone"
  std::string launch;                  ///< the same on all ranks, and on no others; empty: alone
};

/// A variable's value, null where it is not set.
using Variable = std::function<const char*(const char* name)>;

/// Open MPI's OMPI_COMM_WORLD_* first, then SLURM's of a step (not those of a batch script, which is no task of a
/// step); alone otherwise. Throws UsageError that names a variable which is absent or no such number, and for ranks
/// that another MPI's launcher started.
Place PlaceFromEnvironment(const Variable& variable);

}  // namespace ds
