// Promise: every rank has one place in the mesh, groups partition the ranks, and what does not fit is refused.
#include "runtime/mesh/mesh.h"

#include <set>

#include "runtime/base/error.h"
#include "test/catch.h"

namespace ds {
namespace {

TEST_CASE("groups along each axis partition the ranks") {
  const Mesh mesh({2, 1, 3, 1, 1, 2}, 12);
  for (int a = 0; a < kAxes; ++a) {
    const Axis axis = static_cast<Axis>(a);
    std::multiset<int> seen;
    for (int rank = 0; rank < mesh.world(); ++rank) {
      const std::vector<int> group = mesh.Group(rank, axis);
      REQUIRE(group.size() == static_cast<size_t>(mesh.extent(axis)));
      CHECK(group[static_cast<size_t>(mesh.coordinate(rank, axis))] == rank);
      if (mesh.coordinate(rank, axis) == 0) seen.insert(group.begin(), group.end());
    }
    CHECK(seen.size() == 12);
    CHECK(std::set<int>(seen.begin(), seen.end()).size() == 12);
  }
  CHECK(mesh.Group(0, Axis::tensor) == std::vector<int>{0, 1});
  CHECK(mesh.Group(3, Axis::data_shard) == std::vector<int>{1, 3, 5});
  CHECK(mesh.Group(5, Axis::pipeline) == std::vector<int>{5, 11});
  CHECK(mesh.data_width() == 3);
  CHECK(mesh.data_rank(5) == 2);
  CHECK(mesh.data_rank(8) == 1);  // of the second stage
  CHECK(Mesh({1, 2, 3, 1, 1, 1}, 6).data_rank(5) == 5);
  CHECK(mesh.str() == "pipeline 2 x data-shard 3 x tensor 2");
}

TEST_CASE("what is left of the ranks is data parallel") {
  ParallelConfig parallel;
  CHECK(MeshOf(parallel, 4).str() == "data-shard 4");
  CHECK(MeshOf(parallel, 1).str() == "one rank");
  parallel.tensor = 2;
  CHECK(MeshOf(parallel, 6).data_width() == 3);
}

TEST_CASE("a mesh that is not the job's ranks is refused") {
  ParallelConfig parallel;
  parallel.tensor = 3;
  CHECK_THROWS_AS(MeshOf(parallel, 4), UsageError);
  parallel.tensor = 0;
  CHECK_THROWS_AS(MeshOf(parallel, 4), UsageError);
  CHECK_THROWS_AS(Mesh({1, 1, 3, 1, 1, 1}, 4), UsageError);
  CHECK_THROWS_AS(Mesh({1, 1, 2, 1, 1, 1}, 4), UsageError);
  CHECK_THROWS_AS(Mesh({1, 1, -4, 1, 1, -1}, 4), UsageError);
  CHECK_THROWS_AS(Mesh({INT64_MAX, 1, 4, 1, 1, 2}, 4), UsageError);
}

}  // namespace
}  // namespace ds
