// One body, run by every rank of a group, over any backend.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"

namespace ds::test {

enum class Backend { threads, gloo_threads, gloo_processes };
const char* NameOf(Backend backend);

/// What became of a rank.
struct Outcome {
  std::string value;     ///< what its body returned
  std::string error;     ///< the message of the exception that left its body; empty: none
  bool aborted = false;  ///< that exception was CommunicatorAborted
  int signal = 0;        ///< the process was ended by this signal
};

using Body = std::function<std::string(int rank, const CommunicatorFactory& factory)>;

/// Runs `body` on `size` ranks at once and waits for all.
std::vector<Outcome> RunRanks(Backend backend, int size, const Body& body,
                              std::chrono::milliseconds timeout = std::chrono::seconds(60));

/// Runs the ranks of Backend::gloo_processes in its place; empty: processes forked here, over Gloo. For the program
/// that mpirun starts (test/unit/comm_mpi).
extern std::function<std::vector<Outcome>(int size, const Body&, std::chrono::milliseconds timeout)> other_processes;

/// What becomes of `body` over the factory that `make` gives.
Outcome RunBody(int rank, const Body& body, const std::function<CommunicatorFactory()>& make);

}  // namespace ds::test
