// Promise: every optimizer gives the same bits whether a unit is stepped whole or by shards, and decays only what
// decays.
#include "runtime/optim/optimizer.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/random.h"
#include "test/catch.h"

namespace ds {
namespace {

ModelLayout OneUnit(int ranks) {
  SegmentSpec segment;
  segment.kind = SegmentKind::mlp;
  segment.name = "unit";
  segment.params = {{"a", Shape{40, 5}, true}, {"b", Shape{7}, false}, {"c", Shape{9}, false}, {"d", Shape{300}, true}};
  ZeroConfig zero;
  zero.param_persistence_threshold = 0;
  zero.reduce_bucket_size = zero.allgather_bucket_size = 256;
  return BuildLayout({segment}, zero, ranks);
}

struct State {
  std::vector<float> gradient, master, moment1, moment2;
  std::vector<bf16> working;

  explicit State(size_t n, float fill = 0) : gradient(n, fill), master(n, fill), moment1(n), moment2(n), working(n) {}
  UnitState View(bool whole) {
    const Shape shape{static_cast<int64_t>(master.size())};
    auto of = [&](auto& values) { return UnitTensor{Tensor::Of(values.data(), shape), whole}; };
    return UnitState{of(gradient), of(master), of(moment1), of(moment2), of(working)};
  }
};

State Random(const ModelLayout& layout) {
  State state(static_cast<size_t>(layout.units[0].numel));
  const KernelContext context;
  const Shape shape{layout.units[0].numel};
  FillNormal(context, RandomStream{1, 2}, 0, 0.0f, 1.0f, Tensor::Of(state.gradient.data(), shape));
  FillNormal(context, RandomStream{1, 3}, 0, 0.0f, 1.0f, Tensor::Of(state.master.data(), shape));
  return state;
}

OptimizerConfig Config(OptimizerKind kind) {
  OptimizerConfig config;
  config.kind = kind;
  config.lr = 0.01;
  config.weight_decay = 0.1;
  config.momentum = 0.9;
  return config;
}

TEST_CASE("stepping shards gives the bits of stepping the whole") {
  constexpr float kHalf = 0.5f;
  for (OptimizerKind kind : {OptimizerKind::adam, OptimizerKind::adamw, OptimizerKind::sgd, OptimizerKind::lion,
                             OptimizerKind::adagrad, OptimizerKind::rmsprop}) {
    const ModelLayout layout = OneUnit(3);
    REQUIRE(layout.units[0].buckets.size() > 1);
    State whole = Random(layout);
    const State initial = whole;
    Optimizer optimizer(Config(kind), layout, 0);
    for (int64_t step = 0; step < 3; ++step) {
      optimizer.BeginStep(Rates{0.01, {}, {}}, step);
      optimizer.StepUnit({}, {&kHalf}, 0, true, whole.View(true));
    }
    CHECK(whole.master != initial.master);

    for (int rank = 0; rank < 3; ++rank) {
      CAPTURE(static_cast<int>(kind), rank);
      const std::vector<ShardRange> ranges = layout.ShardRanges(0, rank);
      State shard(static_cast<size_t>(layout.ShardNumel(0)), -7.0f);
      for (const ShardRange& range : ranges) {
        std::copy_n(&initial.gradient[range.unit_begin], range.count, &shard.gradient[range.shard_begin]);
        std::copy_n(&initial.master[range.unit_begin], range.count, &shard.master[range.shard_begin]);
      }
      Optimizer own(Config(kind), layout, rank);
      for (int64_t step = 0; step < 3; ++step) {
        own.BeginStep(Rates{0.01, {}, {}}, step);
        own.StepUnit({}, {&kHalf}, 0, false, shard.View(false));
      }
      for (const ShardRange& range : ranges) {
        const size_t bytes = static_cast<size_t>(range.count) * sizeof(float);
        CHECK(std::memcmp(&shard.master[range.shard_begin], &whole.master[range.unit_begin], bytes) == 0);
        CHECK(std::memcmp(&shard.moment1[range.shard_begin], &whole.moment1[range.unit_begin], bytes) == 0);
        CHECK(std::memcmp(&shard.working[range.shard_begin], &whole.working[range.unit_begin], bytes / 2) == 0);
      }
    }
  }
}

TEST_CASE("weight decay touches the parameters that decay and no others") {
  for (OptimizerKind kind : {OptimizerKind::adamw, OptimizerKind::lion, OptimizerKind::sgd}) {
    const ModelLayout layout = OneUnit(1);
    State state(static_cast<size_t>(layout.units[0].numel), 0.0f);
    for (float& value : state.master) value = 1.0f;
    OptimizerConfig config = Config(kind);
    Optimizer optimizer(config, layout, 0);
    optimizer.BeginStep(Rates{0.01, {}, {}}, 0);
    optimizer.StepUnit({}, {}, 0, true, state.View(true));
    for (const FlatParam& param : layout.units[0].params) {
      CAPTURE(static_cast<int>(kind), param.spec.name);
      for (int64_t i = 0; i < param.numel(); ++i) {
        const float value = state.master[param.offset + i];
        if (param.spec.decay)
          REQUIRE(value == Approx(1 - 0.01 * 0.1).epsilon(1e-6));
        else
          REQUIRE(value == 1.0f);
      }
    }
  }
}

TEST_CASE("placing a unit's pages changes nothing, and every part of it is inside") {
  for (const bool whole : {true, false}) {
    const ModelLayout layout = OneUnit(3);
    State state = Random(layout);
    const State before = state;
    const Optimizer optimizer(Config(OptimizerKind::adamw), layout, 1);
    optimizer.PlaceUnit(0, whole, state.View(whole));
    optimizer.PlaceUnit(0, whole, {});
    CHECK(state.master == before.master);
    CHECK(state.gradient == before.gradient);
    UnitState small = state.View(whole);
    small.moment2.data = small.moment2.data.Flat(0, 1);
    CHECK_THROWS_AS(optimizer.PlaceUnit(0, whole, small), std::invalid_argument);
  }
}

TEST_CASE("a unit's gradient may come in 16 bits") {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const ModelLayout layout = OneUnit(1);
    State wide = Random(layout);
    std::vector<uint16_t> half(wide.gradient.size());
    for (size_t i = 0; i < half.size(); ++i) {  // what 16 bits hold
      const float g = wide.gradient[i];
      half[i] = dtype == DType::bf16 ? bf16(g).bits : std::bit_cast<uint16_t>(f16(g).value);
      wide.gradient[i] = dtype == DType::bf16 ? static_cast<float>(bf16(g)) : static_cast<float>(f16(g));
    }
    State narrow = wide;
    for (float& g : narrow.gradient) g = std::nanf("");
    Optimizer optimizer(Config(OptimizerKind::adamw), layout, 0);
    optimizer.BeginStep(Rates{0.01, {}, {}}, 0);
    optimizer.StepUnit({}, {}, 0, true, wide.View(true));
    UnitState state = narrow.View(true);
    state.gradient.data = Tensor(half.data(), dtype, Shape{static_cast<int64_t>(half.size())});
    optimizer.StepUnit({}, {}, 0, true, state);
    CHECK(narrow.master == wide.master);
    CHECK(narrow.moment1 == wide.moment1);
    CHECK(narrow.moment2 == wide.moment2);
    CHECK(std::memcmp(narrow.working.data(), wide.working.data(), wide.working.size() * 2) == 0);
  }
}

}  // namespace
}  // namespace ds
