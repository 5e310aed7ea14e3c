// Whole training jobs on this machine's GPUs, a thread a rank, with the harness of test/layout.
#pragma once

#include "test/layout/harness.h"

namespace ds::layout_test {

/// Options for a run of `ranks` GPUs over NCCL. Fails the test where it has fewer.
RunOptions OnGpus(int ranks);

/// Whether the machine has `ranks` GPUs; says on the screen that a test is left out where not.
bool HasGpus(int ranks);

}  // namespace ds::layout_test
