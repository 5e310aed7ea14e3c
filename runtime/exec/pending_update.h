// What a step decided and left to the next one: whether, and by what numbers, the host steps what is kept below the
// device (Action::pending). Its gradients stay where the plan keeps them.
#pragma once

#include "runtime/optim/optimizer.h"

namespace ds {

/// Of one parameter store; shared by the executors that step it, which take turns.
struct PendingUpdate {
  bool there = false;        ///< else pending actions are left out
  float gradient_scale = 0;  ///< clipping, and the inverse of the loss scale
  StepScalars scalars;       ///< of the step that left it
};

}  // namespace ds
