// What a rank holds of one unit's state: all of it, the shard that it owns, or one bucket's piece of the shard.
#pragma once

#include <vector>

#include "runtime/model/layout.h"

namespace ds {

struct UnitTensor {
  Tensor data;         ///< one-dimensional; empty: absent
  bool whole = false;  ///< element u of the unit is data[u]; otherwise data[u - unit_begin + shard_begin] of its range,
  int64_t first = 0;   ///< counted from this element of the shard: that of data[0]

  explicit operator bool() const { return static_cast<bool>(data); }

  /// Elements [begin, begin + count) of the unit, which lie in `range` of this rank.
  Tensor Part(const ShardRange& range, int64_t begin, int64_t count) const {
    return data.Flat(whole ? begin : begin - range.unit_begin + range.shard_begin - first, count);
  }
  Tensor Part(const ShardRange& range) const { return Part(range, range.unit_begin, range.count); }
};

/// Elements of one parameter inside a run of a unit.
struct ParamRun {
  int param = 0;      ///< index in the unit
  int64_t begin = 0;  ///< first element, in the parameter
  int64_t unit_begin = 0, count = 0;
};

/// The real elements (no alignment, no padding of the vocabulary) of unit elements [begin, begin + count), a parameter
/// at a time.
std::vector<ParamRun> ParamRuns(const ParamUnit& unit, int64_t begin, int64_t count);

/// Runs of a unit that no parameter covers: alignment and the tail.
std::vector<ShardRange> Gaps(const ParamUnit& unit);

/// The shape of a parameter as users see it: without padding of the vocabulary.
Shape ExportedShape(const ParamSpec& spec);

}  // namespace ds
