// The communicators over MPI, among processes that mpirun starts.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/process.h"
#include "test/catch.h"
#include "test/cluster/mpirun.h"
#include "test/cluster/needs.h"
#include "test/fault/launched_job.h"

using ds::test::Installed;
using ds::test::Mpirun;

TEST_CASE("mpi: every collective, mismatches, aborts and departures among 1, 2 and 4 ranks") {
  if (!Installed("mpirun")) return;
  // Of 4 ranks some runs use 2 or 3; a killed rank would end the others by mpirun.
  for (const auto& [ranks, tests] : {std::pair{1, "a group of one*,wrong extents*"}, std::pair{2, "a send that*"},
                                     std::pair{4,
                                               "gloo among processes*,ranks that ask*,a send that*,abort ends*,a rank "
                                               "that leaves*,large messages*"}}) {
    Mpirun run(ranks, {std::string(DS_BIN_DIR) + "/test-unit-comm_mpi", tests});
    const int code = run.Wait(120);
    INFO(run.output());
    CHECK(code == 0);
    CHECK(run.output().find(std::to_string(ranks) + " ranks over Open MPI") != std::string::npos);
    CHECK(run.NothingLeft(3));
  }
}
