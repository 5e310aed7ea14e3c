// Between the parameter store and checkpoints.
#pragma once

#include <vector>

#include "runtime/checkpoint/checkpoint.h"
#include "runtime/state/param_store.h"

namespace ds {

/// What this rank writes: its shard of every parameter's master and moments.
std::vector<StateSlice> SlicesOf(const ParamStore& store);

/// Fills from `reader`, which outlives the source.
StateSource CheckpointSource(const CheckpointReader& reader);

/// Throws UsageError that names the first parameters which the checkpoint lacks or has in another shape, or whose
/// moments it lacks (it was written with another optimizer).
void CheckCompatible(const ModelLayout& layout, int moments, const CheckpointReader& reader, const std::string& folder);

}  // namespace ds
