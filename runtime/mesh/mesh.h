// Named axes over the ranks of a job, and the groups of ranks along each.
//
// Ranks are numbered row-major over the axes in the order of Axis, the last varying fastest: ranks of one tensor group
// are neighbours (one node), pipeline stages are farthest apart.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/job/job_spec.h"

namespace ds {

enum class Axis : uint8_t { pipeline, data_replicate, data_shard, expert, sequence, tensor };
inline constexpr int kAxes = 6;
const char* NameOf(Axis axis);  ///< "pipeline", "data-replicate", "data-shard", ...

class Mesh {
 public:
  /// Extents by axis. Throws UsageError when one is below 1 or their product is not `world`.
  Mesh(const std::array<int64_t, kAxes>& extents, int64_t world);

  int world() const { return world_; }
  int extent(Axis axis) const { return extents_[static_cast<int>(axis)]; }
  /// Ranks that read different samples: data-replicate x data-shard.
  int data_width() const { return extent(Axis::data_replicate) * extent(Axis::data_shard); }

  int coordinate(int rank, Axis axis) const;
  int data_rank(int rank) const;  ///< among the data_width() ranks that read different samples
  /// The ranks that differ from `rank` on `axis` alone, in the order of their coordinates; `rank` is among them.
  std::vector<int> Group(int rank, Axis axis) const;

  /// "data-shard 4", "pipeline 2 x data-shard 3": axes of more than one rank. One rank: "one rank".
  std::string str() const;

 private:
  int stride(Axis axis) const;

  int world_ = 1;
  std::array<int, kAxes> extents_{};
};

/// The mesh of a job: parallel.* fix their axes, all other ranks are data-shard. Throws UsageError with the arithmetic
/// when they do not divide `world`.
Mesh MeshOf(const ParallelConfig& parallel, int64_t world);

}  // namespace ds
