// Promises: the bytes of parameters, gradients and optimizer state on a rank follow the formulas of the ZeRO stages;
// the plan's predicted peak is within 5% of what the process took.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "runtime/plan/planner.h"
#include "runtime/state/param_store.h"
#include "test/catch.h"
#include "test/layout/harness.h"

namespace ds::layout_test {
namespace {

/// Bytes that a rank's store holds of one kind of state.
int64_t Bytes(const ModelLayout& layout, const ParamStore& store, StateKind state) {
  int64_t bytes = 0;
  for (int unit = 0; unit < static_cast<int>(layout.units.size()); ++unit)
    bytes += store.Find(unit, state).data.bytes();
  return bytes;
}

int64_t GradientBytes(const ModelLayout& layout, const ParamStore& store) {
  int64_t bytes = 0;
  for (int slot = 0; slot < static_cast<int>(layout.slots.size()); ++slot)
    bytes += store.Find(layout.slots[slot].unit, StateKind::gradient, slot).data.bytes();
  return bytes;
}

// psi parameters over n ranks with bf16 working copies and Adam, as in the ZeRO paper (Rajbhandari et al. 2020) but
// with fp32 gradients: 2 psi + 4 psi + 12 psi, of which stage 1 divides the 12, stage 2 also the 4, stage 3 also the 2.
TEST_CASE("bytes a rank follow the formulas of the stages") {
  for (int ranks : {1, 2, 4}) {
    for (int stage = 0; stage <= 3; ++stage) {
      for (Precision precision : {Precision::bf16, Precision::fp32}) {
        CAPTURE(ranks, stage, static_cast<int>(precision));
        JobSpec spec = TinyLlama();
        spec.zero.stage = stage;
        spec.precision = precision;
        spec.batch.micro_batch_size = 1;
        spec.batch.train_batch_size = ranks;
        const ModelLayout layout = LayoutOf(spec, ranks);
        const Plan plan = BuildPlan(layout, PlanOptionsOf(spec, ranks - 1, ranks));
        const ParamStore store(layout, plan);

        int64_t psi = 0, persistent = 0;
        for (const ParamUnit& unit : layout.units) {
          psi += unit.numel;
          if (unit.persistent) persistent += unit.numel;
        }
        REQUIRE(persistent > 0);
        REQUIRE(psi >= layout.ParameterCount());
        const int64_t element = precision == Precision::bf16 ? 2 : 4;
        const int64_t working = stage == 3 ? (psi - persistent) / ranks + persistent : psi;
        CHECK(Bytes(layout, store, StateKind::working) == element * working);
        CHECK(GradientBytes(layout, store) == 4 * psi / (stage >= 2 ? ranks : 1));
        CHECK(Bytes(layout, store, StateKind::moment1) == 4 * psi / (stage >= 1 ? ranks : 1));
        CHECK(Bytes(layout, store, StateKind::moment2) == 4 * psi / (stage >= 1 ? ranks : 1));
        const int64_t master = precision == Precision::bf16 ? 4 * psi / (stage >= 1 ? ranks : 1) : 0;
        if (master > 0) CHECK(Bytes(layout, store, StateKind::master) == master);

        // fp32's master is the working copy: it takes nothing of its own.
        const int64_t total = element * working + GradientBytes(layout, store) + master +
                              Bytes(layout, store, StateKind::moment1) + Bytes(layout, store, StateKind::moment2);
        CHECK(store.resident_bytes(Tier::device) == total);
        CHECK(plan.price.resident_bytes[static_cast<int>(Tier::device)] == total);
      }
    }
  }
}

TEST_CASE("initial weights depend on seed and name alone; over the ranks every element is owned once") {
  JobSpec spec = TinySpec();
  spec.batch.micro_batch_size = 1;
  spec.batch.train_batch_size = 12;
  std::map<std::string, std::vector<float>> first;
  for (int ranks : {1, 3}) {
    for (int stage : {0, 3}) {
      spec.zero.stage = stage;
      spec.zero.reduce_bucket_size = ranks * 700;
      const ModelLayout layout = LayoutOf(spec, ranks);
      std::map<std::string, std::vector<float>> values;
      std::map<std::string, std::vector<int>> owners;
      for (int rank = 0; rank < ranks; ++rank) {
        const Plan plan = BuildPlan(layout, PlanOptionsOf(spec, rank, ranks));
        ParamStore store(layout, plan);
        store.Fill(InitialState(spec.seed));
        for (const StateRun& run : store.Owned()) {
          const size_t numel = static_cast<size_t>(ExportedShape(*run.param).numel());
          if (run.state != StateKind::master) continue;
          values[run.param->name].resize(numel);
          owners[run.param->name].resize(numel);
          for (int64_t i = 0; i < run.data.numel(); ++i) {
            values[run.param->name][run.begin + i] = run.data.as<float>()[i];
            ++owners[run.param->name][run.begin + i];
          }
        }
      }
      for (const auto& [name, counts] : owners) {
        CAPTURE(name, ranks, stage);
        CHECK(std::count(counts.begin(), counts.end(), 1) == static_cast<std::ptrdiff_t>(counts.size()));
      }
      if (first.empty()) first = values;
      CHECK(values == first);
    }
  }
  CHECK(first.at("layers.0.attention.qkv.weight") != first.at("layers.1.attention.qkv.weight"));
  int64_t elements = 0;
  for (const auto& [name, values] : first) elements += static_cast<int64_t>(values.size());
  CHECK(elements == LayoutOf(spec, 1).ParameterCount());
}

/// A GPT-2 of 31.6M parameters.
JobSpec Model30M() {
  JobSpec spec = TinySpec();
  spec.model.layers = 10;
  spec.model.hidden = 512;
  spec.model.heads = 8;
  spec.model.kv_heads = 8;
  spec.model.ffn = 2048;
  spec.model.max_positions = 128;
  spec.data.sequence_length = 128;
  spec.zero.param_persistence_threshold = 100'000;
  spec.batch.train_batch_size = 2;
  spec.training.steps = 1;
  spec.checkpoint.every = -1;
  return spec;
}

// Hidden: runs in a process of its own, whose memory nothing else has touched. DS_PEAK_CASE: ranks, stage, whether
// bf16, whether checkpoints are written from a snapshot.
TEST_CASE("child: peak", "[.peak-child]") {
  const char* value = std::getenv("DS_PEAK_CASE");
  REQUIRE(value != nullptr);
  int ranks = 0, stage = 0, bf16 = 0, snapshot = 0;
  REQUIRE(std::sscanf(value, "%d,%d,%d,%d", &ranks, &stage, &bf16, &snapshot) == 4);
  JobSpec spec = Model30M();
  spec.zero.stage = stage;
  spec.precision = bf16 ? Precision::bf16 : Precision::fp32;
  REQUIRE(LayoutOf(spec, 1).ParameterCount() > 30'000'000);
  if (snapshot) {
    spec.checkpoint.every = 1;
    spec.training.steps = 2;
  }
  // No disk: what is measured is memory. /dev/shm is on every Linux system; its files are not the process's memory.
  const std::string directory = "/dev/shm/ds-peak-" + std::to_string(::getpid());
  const RunOutcome run = Run(spec, RunOptions{.ranks = ranks, .threads = 2, .directory = directory});
  std::error_code ignored;
  std::filesystem::remove_all(directory, ignored);
  REQUIRE(run.error == "");
  REQUIRE((run.result.predicted.host_peak > 0) == (snapshot != 0));
  const Footprint &predicted = run.result.predicted, &measured = run.result.measured;
  std::printf("PEAK %lld %lld\n", static_cast<long long>(predicted.device_peak + predicted.host_peak),
              static_cast<long long>(measured.device_peak + measured.host_peak));
}

TEST_CASE("the predicted peak of a 30M-parameter model is within 5% of the measured one", "[measured-memory]") {
  for (const char* job : {"1,0,0,1", "1,3,1,0"}) {
    CAPTURE(job);
    const std::string command =
        "DS_PEAK_CASE=" + std::string(job) + " '" + DS_BIN_DIR + "/test-layout' '[.peak-child]' 2>&1";
    FILE* child = ::popen(command.c_str(), "r");
    REQUIRE(child != nullptr);
    std::string output;
    char line[512];
    long long predicted = 0, measured = 0;
    while (std::fgets(line, sizeof line, child)) {
      output += line;
      std::sscanf(line, "PEAK %lld %lld", &predicted, &measured);
    }
    CAPTURE(output);
    REQUIRE(::pclose(child) == 0);
    CAPTURE(predicted, measured);
    REQUIRE(measured > 0);
    WARN("ranks,stage,bf16,snapshot " << job << ": predicted " << predicted << ", measured " << measured << ", "
                                      << 100.0 * static_cast<double>(predicted - measured) /
                                             static_cast<double>(measured)
                                      << "%");
    CHECK(static_cast<double>(predicted) == Approx(static_cast<double>(measured)).epsilon(0.05));
  }
}

}  // namespace
}  // namespace ds::layout_test
