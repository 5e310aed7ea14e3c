#include "launcher/bootstrap/bootstrap.h"
#include "runtime/base/error.h"

namespace ds {

std::unique_ptr<Bootstrap> MakeBootstrap(const std::string& kind, OnAgentEnd on_end) {
  if (kind == "auto" || kind == "local") return MakeLocalBootstrap(std::move(on_end));
  if (kind == "ssh" || kind == "slurm" || kind == "mpi" || kind == "daemon") {
    throw UsageError("bootstrap `" + kind +
                     "` is not in this build, which brings agents up on this machine only: use "
                     "--bootstrap local (hosts: localhost, 127.0.0.N, this machine's name)");
  }
  throw UsageError("bootstrap `" + kind + "` is unknown: expected auto, local, ssh, slurm, mpi or daemon");
}

}  // namespace ds
