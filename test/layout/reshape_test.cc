// Promise: what any number of ranks wrote under any ZeRO stage, any number of ranks reads under any stage, bit for bit;
// and training goes on from there: on the same width as if it had never stopped, on another within rounding.
//
// {1, 2, 4, 8} ranks x ZeRO {0, 1, 2, 3} write, and each of the sixteen reads what each of the sixteen wrote.
#include <cmath>
#include <cstring>
#include <limits>

#include "runtime/checkpoint/checkpoint.h"
#include "runtime/plan/planner.h"
#include "runtime/state/param_store.h"
#include "runtime/train/state_transfer.h"
#include "test/catch.h"
#include "test/layout/harness.h"

namespace ds::layout_test {
namespace {

constexpr int64_t kWritten = 3, kEnd = 6;  // steps
constexpr int kWidths[] = {1, 2, 4, 8};

/// Losses on another width differ by the rounding of sums in another order, fp32, over three steps.
constexpr double kOtherWidth = 1e-5;

JobSpec Job(JobSpec spec, int stage) {
  spec.zero.stage = stage;
  spec.zero.reduce_bucket_size = 4000;  // units of several buckets, so that a rank's slices are many
  spec.batch.train_batch_size = 16;
  spec.checkpoint.every = kWritten;
  spec.training.steps = kEnd;
  return spec;
}

struct Written {
  RunOutcome run;          // all kEnd steps
  std::string checkpoint;  // of step kWritten
};

Written Write(const JobSpec& spec, int ranks) {
  const std::string directory = NewDirectory();
  Written written{Run(spec, RunOptions{.ranks = ranks, .directory = directory}),
                  directory + "/checkpoints/step-" + std::to_string(kWritten)};
  REQUIRE(written.run.error == "");
  return written;
}

/// Every rank's store of one layout, empty of meaning: every float that nobody fills stays a NaN.
struct Target {
  ModelLayout layout;
  std::vector<Plan> plans;
  std::vector<ParamStore> stores;
};

std::unique_ptr<Target> MakeTarget(JobSpec spec, int ranks) {
  spec.batch.micro_batch_size = spec.batch.train_batch_size / ranks;
  auto target = std::make_unique<Target>();
  target->layout = LayoutOf(spec, ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    target->plans.push_back(BuildPlan(target->layout, PlanOptionsOf(spec, rank, ranks)));
    target->stores.emplace_back(target->layout, target->plans.back());
  }
  return target;
}

const char* LabelOf(StateKind state) {
  return state == StateKind::master ? "master" : state == StateKind::moment1 ? "moment1" : "moment2";
}

/// Loads `checkpoint` into every rank of `target` and puts what the ranks own together again.
State Load(Target& target, const std::string& checkpoint) {
  const CheckpointReader reader(checkpoint);
  CheckCompatible(target.layout, 2, reader, checkpoint);
  State state;
  for (ParamStore& store : target.stores) {
    store.Fill([](const ParamSpec&, StateKind, int64_t, Tensor out) {
      std::fill_n(out.as<float>(), out.numel(), std::numeric_limits<float>::quiet_NaN());
    });
    store.Fill(CheckpointSource(reader));
    for (const StateRun& run : store.Owned()) {
      std::vector<float>& values = state[{run.param->name, LabelOf(run.state)}];
      values.resize(static_cast<size_t>(ExportedShape(*run.param).numel()), std::numeric_limits<float>::quiet_NaN());
      std::memcpy(values.data() + run.begin, run.data.as<float>(), static_cast<size_t>(run.data.bytes()));
    }
    // The working copies, whole or not, hold the same values: fp32's are the master's.
    for (int unit = 0; unit < static_cast<int>(target.layout.units.size()); ++unit) {
      const UnitTensor working = store.Find(unit, StateKind::working);
      for (int64_t i = 0; i < working.data.numel(); ++i)
        if (std::isnan(working.data.as<float>()[i])) FAIL("a working copy has elements that nobody loaded");
    }
  }
  return state;
}

State Read(const std::string& checkpoint) {
  const CheckpointReader reader(checkpoint);
  State state;
  for (const auto& [name, shape] : reader.parameters())
    for (StateKind kind : {StateKind::master, StateKind::moment1, StateKind::moment2}) {
      std::vector<float>& values = state[{name, LabelOf(kind)}];
      values.resize(static_cast<size_t>(shape.numel()));
      reader.Read(name, kind, 0, Tensor::Of(values.data(), Shape{shape.numel()}));
    }
  return state;
}

void RequireSameBits(const State& a, const State& b) {
  REQUIRE(a.size() == b.size());
  for (const auto& [key, values] : a) {
    const auto found = b.find(key);
    REQUIRE(found != b.end());
    if (found->second.size() != values.size() ||
        std::memcmp(found->second.data(), values.data(), values.size() * sizeof(float)) != 0)
      FAIL("the " << key.second << " of " << key.first << " is not what was written");
  }
}

void RequireSameScalars(const std::string& checkpoint, const TrainingState& expected, int ranks) {
  const TrainingState state = CheckpointReader(checkpoint).state();
  CHECK(state.step == expected.step);
  CHECK(state.tokens == expected.tokens);
  CHECK(state.samples == expected.samples);
  CHECK(state.optimizer_steps == expected.optimizer_steps);
  CHECK(state.seed == expected.seed);
  CHECK(state.data_width == ranks);
  CHECK(state.final_loss == Approx(expected.final_loss).epsilon(kOtherWidth));
}

/// Resumes under (ranks, stage) and compares with the uninterrupted run of that layout.
void RequireGoesOn(const Written& from, const JobSpec& spec, int ranks, const RunOutcome& whole, bool same_bits) {
  const RunOutcome resumed = Run(spec, RunOptions{.ranks = ranks, .resume = from.checkpoint});
  RunOutcome rest = whole;
  std::erase_if(rest.records, [](const StepRecord& record) { return record.step <= kWritten; });
  if (same_bits) return RequireSame(rest, resumed);
  REQUIRE(resumed.error == "");
  REQUIRE(resumed.records.size() == rest.records.size());
  for (size_t i = 0; i < rest.records.size(); ++i) {
    CHECK(resumed.records[i].step == rest.records[i].step);
    CHECK(resumed.records[i].tokens == rest.records[i].tokens);
    CHECK(resumed.records[i].lr == rest.records[i].lr);
    CHECK(resumed.records[i].loss == Approx(rest.records[i].loss).epsilon(kOtherWidth));
  }
}

TEST_CASE("every width and stage reads what every width and stage wrote, bit for bit, and training goes on") {
  std::map<std::pair<int, int>, Written> written;
  std::map<std::pair<int, int>, std::unique_ptr<Target>> targets;
  for (int ranks : kWidths)
    for (int stage = 0; stage <= 3; ++stage) {
      written[{ranks, stage}] = Write(Job(TinySpec(), stage), ranks);
      targets[{ranks, stage}] = MakeTarget(Job(TinySpec(), stage), ranks);
    }
  const TrainingState scalars = CheckpointReader(written.at({1, 0}).checkpoint).state();
  CHECK(scalars.samples == kWritten * 16);
  int pairs = 0;
  for (const auto& [from, source] : written) {
    const State expected = Read(source.checkpoint);
    RequireSameScalars(source.checkpoint, scalars, from.first);
    for (const auto& [to, target] : targets) {
      CAPTURE(from.first, from.second, to.first, to.second);
      RequireSameBits(expected, Load(*target, source.checkpoint));
      ++pairs;
      // Every pair of stages of a width (of 8, which takes the longest, each with itself); of two widths four pairs.
      const bool same_width = from.first == to.first;
      if (same_width ? from.first == 8 && from.second != to.second : from.second + to.second != 3) continue;
      RequireGoesOn(source, Job(TinySpec(), to.second), to.first, written.at(to).run, same_width);
    }
  }
  CHECK(pairs == 256);
}

TEST_CASE("LLaMA's shape, tied and untied, with a padded vocabulary, is read on any other layout") {
  const bool tied = GENERATE(false, true);
  CAPTURE(tied);
  JobSpec llama = TinyLlama();
  llama.model.tied_head = tied;
  REQUIRE(llama.model.padded_vocabulary() > llama.model.vocabulary);
  const std::pair<int, int> places[] = {{1, 0}, {2, 3}, {4, 1}, {8, 3}};
  std::map<std::pair<int, int>, Written> written;
  std::map<std::pair<int, int>, std::unique_ptr<Target>> targets;
  for (const auto& place : places) {
    written[place] = Write(Job(llama, place.second), place.first);
    targets[place] = MakeTarget(Job(llama, place.second), place.first);
  }
  for (const auto& [from, source] : written) {
    const State expected = Read(source.checkpoint);
    CHECK(expected.at({"embedding.tokens.weight", "master"}).size() == static_cast<size_t>(257 * 32));
    for (const auto& [to, target] : targets) {
      CAPTURE(from.first, from.second, to.first, to.second);
      RequireSameBits(expected, Load(*target, source.checkpoint));
    }
  }
  RequireGoesOn(written.at({2, 3}), Job(llama, 3), 8, written.at({8, 3}).run, false);
  RequireGoesOn(written.at({8, 3}), Job(llama, 0), 1, written.at({1, 0}).run, false);
  RequireGoesOn(written.at({4, 1}), Job(llama, 1), 4, written.at({4, 1}).run, true);
}

TEST_CASE("with accumulation a resume within a class of stages is bit for bit, across the classes within rounding") {
  auto job = [](int stage) {
    JobSpec spec = Job(TinySpec(), stage);
    spec.batch.accumulation = 2;
    return spec;
  };
  std::map<int, Written> written;
  for (int stage = 0; stage <= 3; ++stage) written[stage] = Write(job(stage), 2);
  for (int from = 0; from <= 3; ++from)
    for (int to = 0; to <= 3; ++to) {
      CAPTURE(from, to);
      RequireGoesOn(written.at(from), job(to), 2, written.at(to).run, from / 2 == to / 2);
    }
}

}  // namespace
}  // namespace ds::layout_test
