// A job on some of its hosts: the same global batch, at a width that divides it.
#include "launcher/nodes/node_fit.h"

#include "runtime/base/error.h"
#include "test/catch.h"

namespace ds {
namespace {

using Catch::Matchers::Contains;

Job JobOn(const std::vector<int>& slots, const std::string& batch) {
  Job job;
  int world = 0;
  for (size_t i = 0; i < slots.size(); ++i) {
    HostSlots host;
    host.host = std::string(1, static_cast<char>('a' + i));
    for (int slot = 0; slot < slots[i]; ++slot) host.slots.push_back(slot);
    job.hosts.push_back(host);
    world += slots[i];
  }
  job.ranks = MapRanks(job.hosts);
  job.spec = ParseJobSpec(
      "job: {name: fit}\nmodel: {preset: gpt2-tiny}\ndata: {train: /x.txt}\ntraining: {steps: 5}\n"
      "deepspeed: {" +
          batch + ", optimizer: {type: AdamW}}\n",
      "job.yaml", "/", {}, world);
  return job;
}

}  // namespace

TEST_CASE("The global batch stays: the micro-batch where it divides, else the largest below; accumulation follows") {
  const BatchConfig batch{48, 4, 3};  // 4 ranks
  CHECK(*BatchForWidth(batch, 4) == batch);
  CHECK(*BatchForWidth(batch, 3) == BatchConfig{48, 4, 4});
  CHECK(*BatchForWidth(batch, 2) == BatchConfig{48, 4, 6});
  CHECK(*BatchForWidth(batch, 1) == BatchConfig{48, 4, 12});
  CHECK(*BatchForWidth(batch, 16) == BatchConfig{48, 3, 1});
  CHECK(*BatchForWidth(batch, 48) == BatchConfig{48, 1, 1});
  CHECK(!BatchForWidth(batch, 5));
  CHECK(!BatchForWidth(batch, 0));
  CHECK(*BatchForWidth({10, 4, 1}, 2) == BatchConfig{10, 1, 5});
}

TEST_CASE("The most nodes that divide the batch; the others are spares; ranks are renumbered") {
  const Job job = JobOn({2, 2, 2, 2}, "train_batch_size: 16, train_micro_batch_size_per_gpu: 2");
  NodeFit fit = FitToNodes(job, {0, 2, 3}, 1);  // 6 ranks do not divide 16
  CHECK(fit.nodes == std::vector<int>{0, 2});
  REQUIRE(fit.ranks.size() == 4);
  CHECK(fit.ranks[2].rank == 2);
  CHECK(fit.ranks[2].node == 2);
  CHECK(fit.ranks[3].local_rank == 1);
  CHECK(fit.spec.batch == BatchConfig{16, 2, 2});
  CHECK(fit.text == "2 of 4 nodes (a, c), 4 ranks, micro-batch 2 x accumulation 2 x 4 = 16 samples a step; spare: d");
  fit = FitToNodes(job, {3}, 1);
  CHECK(fit.spec.batch == BatchConfig{16, 2, 4});
  CHECK(fit.text == "1 of 4 nodes (d), 2 ranks, micro-batch 2 x accumulation 4 x 2 = 16 samples a step");
}

TEST_CASE("No going on below min_nodes, nor where no width divides") {
  const Job job = JobOn({2, 2, 2, 2}, "train_batch_size: 16, train_micro_batch_size_per_gpu: 2");
  CHECK_THROWS_WITH(FitToNodes(job, {0, 1, 2}, 3),
                    Contains("no data-parallel width on 3 to 3 nodes divides") && Contains("train_batch_size 16"));
  CHECK_THROWS_WITH(FitToNodes(job, {0}, 2), Contains("1 node left, and launch.min_nodes is 2"));
  CHECK_THROWS_WITH(FitToNodes(job, {}, 1), Contains("0 nodes left"));
}

TEST_CASE("Nodes of unlike sizes, and programs, which have no batch") {
  Job job = JobOn({1, 3, 2}, "train_batch_size: 12");
  CHECK(FitToNodes(job, {1, 2}, 1).nodes == std::vector<int>{1});  // 5 ranks do not divide 12, 3 do
  job.options.program = {"x"};
  const NodeFit fit = FitToNodes(job, {1, 2}, 2);
  CHECK(fit.ranks.size() == 5);
  CHECK(fit.text == "2 of 3 nodes (b, c), 5 ranks");
}

}  // namespace ds
