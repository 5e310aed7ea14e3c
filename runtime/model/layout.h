// Where every parameter lives: flat units, their buckets, and which rank owns which part.
//
// A unit is a flat run of parameters that is gathered, released, reduced and stepped together (FSDP's "unit"). Each
// segment has up to two: its large parameters, and its small ones, which ZeRO-3 keeps whole: a parameter of fewer
// elements than stage3_param_persistence_threshold, until stage3_model_persistence_threshold elements are taken in
// model order. The token table of a tied model is a unit of its own, used by the embedding and by the head.
// A unit is cut into buckets of at most reduce_bucket_size and allgather_bucket_size elements (but at least
// ranks * kParamAlignment), the last padded; rank r owns the r-th piece of every bucket. This one partition serves
// every ZeRO stage: that is why stages agree bit for bit.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/model/segment_spec.h"

namespace ds {

/// A parameter's place in its unit.
struct FlatParam {
  ParamSpec spec;
  int64_t offset = 0;  ///< elements from the unit's start; a multiple of kParamAlignment
  int64_t numel() const { return spec.shape.numel(); }
};

inline constexpr int64_t kParamAlignment = 64;  ///< elements

/// Elements [begin, end) of a unit that are reduced, and gathered, by one collective. (end - begin) is a multiple of
/// ranks * kParamAlignment.
struct Bucket {
  int64_t begin = 0, end = 0;
  int64_t numel() const { return end - begin; }
};

struct ParamUnit {
  std::string name;  ///< "embedding.tokens" (tied), "layer3.attention", "layer3.attention.small" (persistent), ...
  bool persistent = false;  ///< small parameters: whole on every rank under every stage
  std::vector<FlatParam> params;
  int64_t numel = 0;  ///< with alignment and padding: the sum of the buckets
  std::vector<Bucket> buckets;
};

/// Elements [begin, begin + count) of a unit which one rank owns, and where they stand in that rank's shard.
struct ShardRange {
  int64_t unit_begin = 0, shard_begin = 0, count = 0;
};

/// A segment's use of one parameter.
struct ParamRef {
  int unit = 0;
  int param = 0;  ///< index in the unit
};

/// A gradient of one unit that one segment writes. A tied unit has two, accumulated apart: slots of one unit share its
/// layout and partition.
struct GradientSlot {
  int unit = 0;
  int segment = 0;
};

struct ModelLayout {
  int ranks = 1;
  std::vector<SegmentSpec> segments;
  std::vector<ParamUnit> units;  ///< in model order
  std::vector<std::vector<ParamRef>>
      params;  ///< a segment: its params in SegmentSpec order; a tied head: the token table last
  std::vector<std::vector<int>> units_of;  ///< a segment: the units it reads, ascending
  std::vector<GradientSlot> slots;
  std::vector<std::vector<int>> slots_of;  ///< a segment: the slots it writes, one for each of units_of, in that order

  int64_t ShardNumel(int unit) const { return units[unit].numel / ranks; }
  /// The ranges of `unit` that `rank` owns, one a bucket.
  std::vector<ShardRange> ShardRanges(int unit, int rank) const;
  int64_t ParameterCount() const;  ///< real parameters, without padding
};

/// The layout of `segments` over `ranks` data-parallel ranks.
ModelLayout BuildLayout(std::vector<SegmentSpec> segments, const ZeroConfig& zero, int ranks);

}  // namespace ds
