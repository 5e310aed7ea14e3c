// A SLURM of two nodes on this machine, for one test: its own munge, controller, node daemons, ports and folder. Needs
// root, as slurmd and munged do here.
#pragma once

#include <string>

#include "test/fault/launched_job.h"

namespace ds::test {

class SlurmCluster {
 public:
  SlurmCluster();   ///< fails the test where it does not come up within 40 s
  ~SlurmCluster();  ///< ends the daemons
  SlurmCluster(const SlurmCluster&) = delete;
  SlurmCluster& operator=(const SlurmCluster&) = delete;

  /// For SLURM_CONF: nodes n1 and n2.
  std::string configuration() const { return folder_.path() + "/slurm.conf"; }

  /// Whether SLURM can be run here; otherwise the test that asks is skipped, or failed under CI=true where a program is
  /// missing.
  static bool Possible();

 private:
  TemporaryFolder folder_;
};

}  // namespace ds::test
