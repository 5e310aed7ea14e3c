// From measured transfers to a latency and a bandwidth.
#pragma once

#include <utility>
#include <vector>

#include "runtime/plan/machine_file.h"

namespace ds {

/// The line seconds = latency + bytes / bytes_per_second through points of (bytes, seconds) that minimises the sum of
/// squared relative errors: a small transfer counts as much as a large one. The latency is never negative. Where sizes
/// do not differ, or larger transfers are not slower, the latency is 0 and the bandwidth that of the fastest point; of
/// no point with bytes and seconds above 0: nothing measured, all zero.
LinkRate FitLinkRate(const std::vector<std::pair<double, double>>& points);

}  // namespace ds
