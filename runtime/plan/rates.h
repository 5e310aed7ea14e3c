// How long one matrix product, attention or collective takes, by what was measured of a machine.
//
// The law. A shape that was not measured takes its operations at the rate of the nearest one that was: of the same
// dtype (a 16-bit one stands in for the other, and an 8-bit one for the other), where some have the same transposes
// (the same `deterministic`) among those alone, the one with the least sum of |log2 (wanted / measured)| over its
// extents; of equals the first in the file. A collective over n ranks takes the rate of the nearest measured number of
// ranks m, its latency times (n - 1) / (m - 1): a ring has n - 1 hops.
#pragma once

#include <optional>
#include <vector>

#include "runtime/plan/machine_file.h"

namespace ds {

/// Operations a second; nullopt: none of the dtype was measured.
std::optional<double> MatMulRateOf(const std::vector<MatMulRate>& measured, const MatMulKey& key);
/// Likewise; a backward is measured apart from a forward.
std::optional<double> AttentionRateOf(const std::vector<AttentionRate>& measured, const AttentionRate& wanted);
/// Seconds of a collective in which a rank sends `bytes`; nullopt: its kind was not measured.
std::optional<double> CollectiveSeconds(const std::vector<CollectiveRate>& measured, CollectiveKind kind, int ranks,
                                        int64_t bytes);

}  // namespace ds
