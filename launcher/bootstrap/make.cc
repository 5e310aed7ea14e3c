#include "launcher/bootstrap/bootstrap.h"
#include "runtime/base/error.h"
#include "runtime/base/process.h"

namespace ds {

std::string BootstrapSettings::AgentProgram() const {
  return agent == "auto" ? ExecutableFolder() + "/ds-agent" : agent;
}

std::unique_ptr<Bootstrap> MakeBootstrap(const std::string& kind, const BootstrapSettings& settings,
                                         OnAgentEnd on_end) {
  if (kind == "local") return MakeLocalBootstrap(settings, std::move(on_end));
  if (kind == "ssh") return MakeSshBootstrap(settings, std::move(on_end));
  if (kind == "slurm") return MakeSlurmBootstrap(settings, std::move(on_end));
  if (kind == "mpi") return MakeMpiBootstrap(settings, std::move(on_end));
  if (kind == "daemon") return MakeDaemonBootstrap(settings, std::move(on_end));
  throw UsageError("bootstrap `" + kind + "` is unknown: expected auto, local, ssh, slurm, mpi or daemon");
}

}  // namespace ds
