// How steps and numbers are written for people.
#pragma once

#include <cstdint>
#include <string>

#include "proto/deepshard.pb.h"

namespace ds {

/// One step as a line: "step 20/200  loss 2.3456  grad 1.23  lr 3e-04  12.3k tokens/s  123 ms  left 1 min 02 s".
/// `left_seconds` < 0: unknown.
std::string StepLine(const deepshard::v1::StepRecord& record, int64_t steps, double left_seconds);

/// "1.23k", "45.6M"
std::string CountText(double value);
/// "123 MiB", "4.5 GiB"
std::string BytesText(int64_t bytes);

/// The parts of StepLine: "step 20/200"; "loss 2.3456  grad 1.23 ..."; "  left 1 min 02 s".
std::string StepCount(const deepshard::v1::StepRecord& record, int64_t steps);
std::string StepValues(const deepshard::v1::StepRecord& record);
std::string TimeLeftText(double seconds);

}  // namespace ds
