// A worker's place among ranks that no agent started, and how such ranks meet.
#include <map>
#include <thread>

#include "runtime/base/error.h"
#include "runtime/base/interface.h"
#include "runtime/worker/standalone/address.h"
#include "runtime/worker/standalone/file_board.h"
#include "runtime/worker/standalone/meeting.h"
#include "runtime/worker/standalone/place.h"
#include "test/catch.h"
#include "test/fault/launched_job.h"

namespace ds::test {
namespace {

Place PlaceOf(std::map<std::string, std::string> variables) {
  return PlaceFromEnvironment([&](const char* name) -> const char* {
    auto it = variables.find(name);
    return it == variables.end() ? nullptr : it->second.c_str();
  });
}

std::map<std::string, std::string> Step(const std::string& rank, const std::string& node, const std::string& local) {
  return {{"SLURM_JOB_ID", "7"},
          {"SLURM_STEP_ID", "0"},
          {"SLURM_PROCID", rank},
          {"SLURM_STEP_NUM_TASKS", "7"},
          {"SLURM_NODEID", node},
          {"SLURM_LOCALID", local},
          {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"}};
}

}  // namespace

TEST_CASE("a place is what mpirun or srun says; alone otherwise") {
  const Place alone = PlaceOf({});
  CHECK((alone.rank == 0 && alone.size == 1 && !alone.mpi && alone.from == "alone"));

  const Place mpi = PlaceOf({{"OMPI_COMM_WORLD_RANK", "3"},
                             {"OMPI_COMM_WORLD_SIZE", "8"},
                             {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                             {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                             {"SLURM_PROCID", "0"},  // of the step that runs mpirun's daemons
                             {"SLURM_STEP_ID", "0"},
                             {"SLURM_STEP_NUM_TASKS", "1"}});
  CHECK((mpi.rank == 3 && mpi.size == 8 && mpi.local_rank == 1 && mpi.local_size == 2 && mpi.mpi));

  const Place last = PlaceOf(Step("6", "3", "0"));
  CHECK((last.rank == 6 && last.size == 7 && last.local_rank == 0 && last.local_size == 1 && !last.mpi));
  const Place third = PlaceOf(Step("5", "2", "1"));
  CHECK((third.local_rank == 1 && third.local_size == 2 && third.from == "srun"));
  CHECK(third.launch == last.launch);

  // A batch script is no task of a step, whatever it finds in its environment.
  CHECK(PlaceOf({{"SLURM_JOB_ID", "7"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}}).size == 1);
}

TEST_CASE("a place that cannot be is refused, and the variable named") {
  using Catch::Contains;
  CHECK_THROWS_WITH(PlaceOf({{"OMPI_COMM_WORLD_SIZE", "2"}}), Contains("OMPI_COMM_WORLD_RANK"));
  CHECK_THROWS_WITH(PlaceOf({{"OMPI_COMM_WORLD_SIZE", "two"}, {"OMPI_COMM_WORLD_RANK", "0"}}),
                    Contains("OMPI_COMM_WORLD_SIZE=two"));
  auto outside = Step("7", "0", "0");
  CHECK_THROWS_WITH(PlaceOf(outside), Contains("contradicts itself"));
  auto short_list = Step("6", "4", "0");
  CHECK_THROWS_WITH(PlaceOf(short_list), Contains("SLURM_STEP_TASKS_PER_NODE"));
  CHECK_THROWS_WITH(PlaceOf({{"PMI_RANK", "0"}}), Contains("PMI_RANK"));
}

TEST_CASE("threads are shared by ranks that may use the same cores") {
  const RankFacts bound_a{"h", "m", "b", "0,1,2,3", 4, {}}, bound_b{"h", "m", "b", "4,5,6,7", 4, {}},
      elsewhere{"i", "n", "b", "0,1,2,3", 4, {}};
  const std::vector<RankFacts> ranks{bound_a, bound_a, bound_b, elsewhere};
  CHECK(ThreadsOf(0, ranks) == 2);
  CHECK(ThreadsOf(2, ranks) == 4);
  CHECK(ThreadsOf(3, ranks) == 4);
}

TEST_CASE("a rank's GPU is the only one that it sees, or that of its place on the node") {
  RankFacts two{"h", "m", "b", "0", 1, {"GPU-a", "GPU-b"}}, only_a = two, only_b = two;
  only_a.gpus = {"GPU-a"};
  only_b.gpus = {"GPU-b"};
  CHECK(GpuOf(1, 1, {two, two}) == 1);
  CHECK(GpuOf(1, 1, {only_a, only_b}) == 0);
  CHECK_THROWS_AS(GpuOf(2, 2, {two, two, two}), Error);
  CHECK_THROWS_AS(GpuOf(1, 1, {only_a, only_a}), Error);
}

TEST_CASE("a folder is a store: values are whole, keys any bytes, a folder of an earlier launch is made anew") {
  TemporaryFolder folder;
  const std::string path = folder.path() + "/meet";
  using std::chrono::milliseconds;
  CHECK_THROWS_WITH(FileBoard(path, false, milliseconds(30)), Catch::Contains("rank 0 did not make"));
  FileBoard(path, true, milliseconds(0)).Set("job", "old");
  FileBoard first(path, true, milliseconds(0));
  FileBoard second(path, false, milliseconds(1000));
  std::string value;
  CHECK(!second.Find("job", value));
  CHECK_THROWS_WITH(second.Get("job", milliseconds(20)), Catch::Contains("job"));
  std::thread later([&] { first.Set("a/b\n", std::string("x\0y", 3)); });
  CHECK(second.Get("a/b\n", milliseconds(5000)) == std::string("x\0y", 3));
  later.join();
  first.Remove();
  CHECK(!second.Find("a/b\n", value));
}

TEST_CASE("one machine needs no network; several find the address that works") {
  MemoryStore store;
  CHECK(DataAddress(0, {"m", "m"}, "auto", store, std::chrono::seconds(1)) == "127.0.0.1");
  bool has_network = false;
  for (const NetworkInterface& interface : NetworkInterfaces())
    has_network = has_network || (interface.up && !interface.loopback && interface.v4());
  if (!has_network) return;
  std::string addresses[3];
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.emplace_back([&, rank] {
      addresses[rank] = DataAddress(rank, {"m", "m", "n"}, "auto", store, std::chrono::seconds(10));
    });
  }
  for (std::thread& rank : ranks) rank.join();
  for (const std::string& address : addresses) {
    CHECK(!address.empty());
    CHECK(address == addresses[0]);  // all are this machine
  }
}

}  // namespace ds::test
