// What mpirun and those that it starts write, taken apart: what ds-mpi-agent tells of its agent, what agents log, and
// what mpirun itself says.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/process.h"

namespace ds {

/// A line of ds-mpi-agent (agent/mpi_agent_main.cc).
struct MpiAgentLine {
  enum class Kind { none, began, ended } kind = Kind::none;
  uint32_t node = 0;
  pid_t pid = -1;       ///< began: the agent's
  std::string boot_id;  ///< began: of its machine
  ProcessEnd end;       ///< ended
};

/// kind `none` where it is another line.
MpiAgentLine ReadMpiAgentLine(std::string_view line);

/// A line as `mpirun --tag-output` writes it: "[1,2]<stderr>:text".
struct TaggedLine {
  bool of_rank = false;  ///< a rank wrote it; otherwise mpirun, or what it runs to reach nodes
  std::string_view text;
};
TaggedLine ReadTag(std::string_view line);

/// What mpirun said, for the message of its end: the last lines, without frames, blank lines and general advice.
class MpirunWords {
 public:
  void Add(std::string_view line);
  /// "  LINE\n  LINE"; empty: it said nothing.
  std::string text() const;
  /// Which of `hosts` it names first, as a whole word; -1: none.
  int FirstNamed(const std::vector<std::string>& hosts) const;

 private:
  std::deque<std::string> lines_;
  bool advice_ = false;  ///< until the frame ends
};

/// "Open MPI 4.1.4" of what `mpirun --version` prints; empty: another MPI's.
std::string OpenMpiVersion(std::string_view printed);

}  // namespace ds
