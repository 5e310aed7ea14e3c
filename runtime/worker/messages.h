// What a worker tells and is told, as messages of the control plane.
#pragma once

#include "proto/deepshard.pb.h"
#include "runtime/train/train.h"
#include "runtime/worker/agent_link.h"

namespace ds {

void Fill(const StepRecord& record, deepshard::v1::StepRecord& out);
/// All but stop_signal.
void Fill(const TrainResult& result, deepshard::v1::WorkerResult& out);
WorkerAssignment FromMessage(const deepshard::v1::Assignment& message);

}  // namespace ds
