#include "runtime/train/train.h"

#include "runtime/base/failpoint.h"
#include "runtime/plan/planner.h"
#include "runtime/train/trainer.h"

namespace ds {

TrainResult Train(const JobSpec& spec, const TrainEnvironment& environment) {
  SetFailpointScope(environment.rank, environment.attempt);
  environment.reporter->OnState("connecting");
  Communicators communicators =
      Communicators::Make(environment.communicators, PlanOptionsOf(spec, environment.rank, environment.size),
                          environment.device_communicators);
  try {
    Trainer trainer(spec, environment, communicators);
    return trainer.Run();
  } catch (const std::exception& error) {
    communicators.Abort("rank " + std::to_string(environment.rank) + " failed: " + error.what());
    throw;
  }
}

}  // namespace ds
