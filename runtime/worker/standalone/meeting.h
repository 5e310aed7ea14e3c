// How ranks without a launcher meet: each says what it is, rank 0 settles the job, and all take its word.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/comm/store.h"
#include "runtime/run/run_directory.h"
#include "runtime/worker/agent_link.h"
#include "runtime/worker/standalone/options.h"
#include "runtime/worker/standalone/place.h"

namespace ds {

/// What a rank says of itself.
struct RankFacts {
  std::string host, machine;  ///< machine: its boot id
  std::string build;
  std::string cores;  ///< those that it may use, as a mask
  int core_count = 1;
  std::vector<std::string> gpus;  ///< that it sees, by UUID
};
RankFacts OwnFacts();

/// CPU threads of `rank`: the cores that it may use, shared by the ranks that may use the same ones.
int ThreadsOf(int rank, const std::vector<RankFacts>& ranks);

/// The GPU of `rank`, as its place among those that it sees: the only one, or that of its local rank. Throws
/// Error(preflight) where there are too few.
int GpuOf(int rank, int local_rank, const std::vector<RankFacts>& ranks);

/// A job that all ranks agree on.
struct Meeting {
  std::vector<RankFacts> ranks;
  WorkerAssignment assignment;            ///< this rank's
  std::optional<RunDirectory> directory;  ///< rank 0's
  std::string parent;                     ///< RUN-ID that is resumed; empty: none
};

/// Collective. Throws Error: what is wrong with files and options on rank 0 (the same error on every rank, Told on the
/// others: it was printed), or with a rank.
Meeting Meet(const StandaloneOptions& options, const Place& place, Store& store);

/// Rank 0 said it.
class Told : public Error {
 public:
  using Error::Error;
};

}  // namespace ds
