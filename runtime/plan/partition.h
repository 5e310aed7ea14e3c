// Cuts a model's segments into the chunks of a pipeline.
#pragma once

#include <string>
#include <vector>

#include "runtime/plan/price.h"

namespace ds {

/// Cuts a row of weights into `parts` runs of at least one each, so that the heaviest is as light as can be, and of all
/// such cuts the one whose squares add up to least. Returns where each begins. Weights are not negative; parts is at
/// least 1 and at most their number.
std::vector<int> Balance(const std::vector<double>& weights, int parts);

/// Where each of `chunks` chunks begins, by parallel.partition:
///   time        equal time of the segments' passes, as predicted for `options` on `machine`
///   parameters  equal numbers of parameters
///   uniform     equal numbers of segments
///   type:REGEX  equal numbers of segments whose kind (embedding, attention, mlp, head) the expression is found in,
///               whatever its case
/// The last three as in DeepSpeed's PipelineModule. Throws UsageError that names the key: more chunks than segments,
/// with the nearest that work; an expression that finds nothing.
std::vector<int> CutSegments(const ModelLayout& layout, const PlanOptions& options, const ParallelConfig& parallel,
                             int chunks, const Machine& machine);

/// Predicted seconds of each segment's passes over one micro-batch, Recompute among them.
std::vector<double> SegmentSeconds(const ModelLayout& layout, const PlanOptions& options, const Machine& machine);

}  // namespace ds
