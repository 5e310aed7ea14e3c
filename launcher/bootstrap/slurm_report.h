// What srun prints, read: which tasks ended and how, and what it says of itself.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/process.h"

namespace ds {

/// The end of tasks, as `srun --verbose` tells it.
struct TasksEnded {
  std::vector<std::string> nodes;
  ProcessEnd end;
};

/// Of a line like "srun: error: n2: task 1: Killed", "srun: error: n[1-2]: tasks 0-1: Exited with exit code 3" or
/// "srun: launch/slurm: _task_finish: n1: task 0: Completed".
/// Nothing for any other line.
std::optional<TasksEnded> ReadTasksEnded(std::string_view line);

/// The node that SLURM says has failed: "srun: error: Node failure on n2". Empty: another line.
std::vector<std::string> ReadNodesFailed(std::string_view line);

/// The lines of `srun --verbose` and slurmstepd: the last of those that may tell the cause of an end.
class SlurmNoise {
 public:
  /// `line` without its task's label. False where it is not SLURM's, but an agent's.
  bool Add(std::string_view line);
  /// "; "-joined, without the programs' prefixes; empty: they said nothing.
  std::string Text() const;

 private:
  std::deque<std::string> lines_;
};

}  // namespace ds
