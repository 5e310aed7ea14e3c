#include "runtime/mesh/mesh.h"

#include "runtime/base/error.h"

namespace ds {

const char* NameOf(Axis axis) {
  switch (axis) {
    case Axis::pipeline:
      return "pipeline";
    case Axis::data_replicate:
      return "data-replicate";
    case Axis::data_shard:
      return "data-shard";
    case Axis::expert:
      return "expert";
    case Axis::sequence:
      return "sequence";
    case Axis::tensor:
      return "tensor";
  }
  return "?";
}

Mesh::Mesh(const std::array<int64_t, kAxes>& extents, int64_t world) : world_(static_cast<int>(world)) {
  if (world < 1) throw UsageError("a mesh needs at least one rank, not " + std::to_string(world));
  int64_t left = world;  // divided, where a product could overflow
  bool divides = true;
  std::string product;
  for (int a = 0; a < kAxes; ++a) {
    const std::string name = NameOf(static_cast<Axis>(a));
    if (extents[a] < 1)
      throw UsageError("mesh: the " + name + " axis has " + std::to_string(extents[a]) + " ranks; it needs at least 1");
    product += (a ? " x " : "") + name + " " + std::to_string(extents[a]);
    divides = divides && left % extents[a] == 0;
    if (divides) left /= extents[a];
    extents_[a] = static_cast<int>(extents[a]);
  }
  if (!divides || left != 1)
    throw UsageError("mesh: " + product + " is not the " + std::to_string(world) + " ranks that the job has");
}

int Mesh::stride(Axis axis) const {
  int stride = 1;
  for (int a = static_cast<int>(axis) + 1; a < kAxes; ++a) stride *= extents_[a];
  return stride;
}

int Mesh::coordinate(int rank, Axis axis) const { return rank / stride(axis) % extent(axis); }

int Mesh::data_rank(int rank) const {
  return coordinate(rank, Axis::data_replicate) * extent(Axis::data_shard) + coordinate(rank, Axis::data_shard);
}

std::vector<int> Mesh::Group(int rank, Axis axis) const {
  const int step = stride(axis), first = rank - coordinate(rank, axis) * step;
  std::vector<int> ranks;
  for (int i = 0; i < extent(axis); ++i) ranks.push_back(first + i * step);
  return ranks;
}

std::string Mesh::str() const {
  std::string text;
  for (int a = 0; a < kAxes; ++a) {
    if (extents_[a] == 1) continue;
    text += (text.empty() ? "" : " x ") + std::string(NameOf(static_cast<Axis>(a))) + " " + std::to_string(extents_[a]);
  }
  return text.empty() ? "one rank" : text;
}

Mesh MeshOf(const ParallelConfig& parallel, int64_t world) {
  int64_t data = world;
  for (int64_t extent : {parallel.pipeline, parallel.expert, parallel.sequence, parallel.tensor}) {
    if (extent < 1 || data % extent != 0)
      throw UsageError("parallel.pipeline " + std::to_string(parallel.pipeline) + " x parallel.expert " +
                       std::to_string(parallel.expert) + " x parallel.sequence " + std::to_string(parallel.sequence) +
                       " x parallel.tensor " + std::to_string(parallel.tensor) + " must be positive and divide the " +
                       std::to_string(world) + " ranks of the job; what is left is data parallel");
    data /= extent;
  }
  return Mesh({parallel.pipeline, 1, data, parallel.expert, parallel.sequence, parallel.tensor}, world);
}

}  // namespace ds
