// The GPUs that slots stand for, and the program that runs on them.
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include "agent/gpus.h"
#include "agent/preflight/preflight.h"
#include "runtime/base/nvml.h"
#include "runtime/base/process.h"

namespace ds {

namespace pb = ::deepshard::v1;

void LookAtSlots(const pb::Bootstrap&, pb::NodeFacts& found, pb::NodeFacts::Check&) { TellGpus(VisibleGpus(), found); }

void LookAtWorker(const pb::Bootstrap&, pb::NodeFacts& found, pb::NodeFacts::Check&) {
  const char* replacement = std::getenv("DS_WORKER_PROGRAM");
  const std::string program = replacement ? replacement : ExecutableFolder() + "/ds-worker";
  if (::access(program.c_str(), X_OK) != 0) found.set_worker_program(program + ": " + std::strerror(errno));
}

}  // namespace ds
