// Promise: one partition of the flat parameters serves every stage, covers every element once, and is aligned.
#include "runtime/model/layout.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "test/catch.h"
#include "test/plan/models.h"

namespace ds {
namespace {
using namespace test;

std::vector<std::string> Names(const std::vector<ParamSpec>& params) {
  std::vector<std::string> names;
  for (const ParamSpec& p : params) names.push_back(p.name);
  return names;
}

TEST_CASE("parameters have checkpoint names in a fixed order") {
  const auto gpt = BuildSegments(TinyGpt(1), DType::f32, {2, 16});
  REQUIRE(gpt.size() == 4);
  CHECK(Names(gpt[0].params) == std::vector<std::string>{"embedding.tokens.weight", "embedding.positions.weight"});
  CHECK(Names(gpt[1].params) ==
        std::vector<std::string>{"layers.0.attention.norm.weight", "layers.0.attention.norm.bias",
                                 "layers.0.attention.qkv.weight", "layers.0.attention.qkv.bias",
                                 "layers.0.attention.proj.weight", "layers.0.attention.proj.bias"});
  CHECK(Names(gpt[2].params) == std::vector<std::string>{"layers.0.mlp.norm.weight", "layers.0.mlp.norm.bias",
                                                         "layers.0.mlp.up.weight", "layers.0.mlp.up.bias",
                                                         "layers.0.mlp.down.weight", "layers.0.mlp.down.bias"});
  CHECK(Names(gpt[3].params) == std::vector<std::string>{"head.norm.weight", "head.norm.bias"});
  CHECK(gpt[0].params[0].shape == Shape{320, 64});
  CHECK(gpt[0].params[0].real_rows == 257);
  CHECK(gpt[1].params[2].shape == Shape{192, 64});
  CHECK(gpt[1].params[4].stddev == Approx(0.02 / std::sqrt(2.0)));

  const auto llama = BuildSegments(TinyLlama(1), DType::bf16, {2, 16});
  CHECK(Names(llama[0].params) == std::vector<std::string>{"embedding.tokens.weight"});
  CHECK(Names(llama[2].params) == std::vector<std::string>{"layers.0.mlp.norm.weight", "layers.0.mlp.gate_up.weight",
                                                           "layers.0.mlp.down.weight"});
  CHECK(llama[2].params[1].shape == Shape{384, 64});
  CHECK(llama[1].params[1].shape == Shape{128, 64});  // 4 query heads and 2 x 2 key and value heads of 16
  CHECK(Names(llama[3].params) == std::vector<std::string>{"head.norm.weight", "head.weight"});
}

TEST_CASE("saved tensors are laid out at 64 bytes") {
  std::vector<int64_t> offsets;
  CHECK(LayOut({{"a", DType::bf16, {3, 5}}, {"b", DType::f32, {16}}, {"c", DType::f64, {1}}}, &offsets) == 192);
  CHECK(offsets == std::vector<int64_t>{0, 64, 128});
  CHECK(LayOut({}) == 0);
  const auto spec = BuildSegments(TinyGpt(1), DType::bf16, {2, 16});
  // normed, mean, rstd, qkv, attended, log_sum_exp of 32 tokens
  CHECK(LayOut(spec[1].saved) == 32 * 64 * 2 + 128 + 128 + 32 * 192 * 2 + 32 * 64 * 2 + 4 * 32 * 4);
}

TEST_CASE("the partition covers each unit once") {
  const ModelConfig model = GENERATE(TinyGpt(), TinyLlama());
  const int ranks = GENERATE(1, 2, 3, 7, 16);
  ZeroConfig zero = SmallZero();
  zero.reduce_bucket_size = GENERATE(1, 5000, 8192, 500'000'000);
  const ModelLayout layout = TinyLayout(model, zero, ranks);
  CAPTURE(ranks, zero.reduce_bucket_size);
  const int64_t quantum = ranks * kParamAlignment;

  std::map<std::string, int> times;
  for (size_t u = 0; u < layout.units.size(); ++u) {
    const ParamUnit& unit = layout.units[u];
    int64_t end = 0;
    for (const FlatParam& p : unit.params) {
      ++times[p.spec.name];
      CHECK(p.offset % kParamAlignment == 0);
      CHECK(p.offset >= end);
      end = p.offset + p.numel();
      CHECK(unit.persistent == (p.numel() < 1000));
    }
    int64_t bucket_end = 0;
    for (const Bucket& b : unit.buckets) {
      CHECK(b.begin == bucket_end);
      CHECK(b.numel() % quantum == 0);
      CHECK(b.numel() <= std::max(zero.reduce_bucket_size, quantum));
      bucket_end = b.end;
    }
    CHECK(bucket_end == unit.numel);
    CHECK(unit.numel - end < quantum + kParamAlignment);

    std::vector<int> owners(static_cast<size_t>(unit.numel), 0);
    for (int rank = 0; rank < ranks; ++rank) {
      int64_t shard_end = 0;
      for (const ShardRange& range : layout.ShardRanges(static_cast<int>(u), rank)) {
        CHECK(range.shard_begin == shard_end);
        shard_end += range.count;
        for (int64_t i = 0; i < range.count; ++i) ++owners[static_cast<size_t>(range.unit_begin + i)];
      }
      CHECK(shard_end == layout.ShardNumel(static_cast<int>(u)));
    }
    CHECK(std::count(owners.begin(), owners.end(), 1) == unit.numel);
  }
  int params = 0;
  for (size_t s = 0; s < layout.segments.size(); ++s) {
    const SegmentSpec& segment = layout.segments[s];
    REQUIRE(layout.params[s].size() == segment.params.size() + (segment.tied ? 1 : 0));
    for (size_t i = 0; i < segment.params.size(); ++i) {
      const ParamRef ref = layout.params[s][i];
      CHECK(layout.units[ref.unit].params[ref.param].spec.name == segment.params[i].name);
      CHECK(times[segment.params[i].name] == 1);
      ++params;
    }
    CHECK(layout.slots_of[s].size() == layout.units_of[s].size());
    for (size_t i = 0; i < layout.slots_of[s].size(); ++i) {
      const GradientSlot slot = layout.slots[layout.slots_of[s][i]];
      CHECK(slot.segment == static_cast<int>(s));
      CHECK(slot.unit == layout.units_of[s][i]);
    }
  }
  CHECK(static_cast<size_t>(params) == times.size());
}

TEST_CASE("a tied token table is a unit of its own with two gradients") {
  const ModelLayout layout = TinyLayout(TinyGpt(), SmallZero(), 2);
  CHECK(layout.units[0].name == "embedding.tokens");
  CHECK(layout.units[0].params.size() == 1);
  CHECK(layout.units_of.front().front() == 0);
  CHECK(layout.units_of.back().front() == 0);
  CHECK(layout.params.back().back().unit == 0);
  CHECK(std::count_if(layout.slots.begin(), layout.slots.end(), [](GradientSlot s) { return s.unit == 0; }) == 2);
  const int64_t layer = 2 * 2 * 64 + (192 * 64 + 192) + (64 * 64 + 64) + (256 * 64 + 256) + (64 * 256 + 64);
  CHECK(layout.ParameterCount() == 257 * 64 + 32 * 64 + 2 * layer + 2 * 64);
}

TEST_CASE("persistent parameters are taken in model order up to the model's threshold") {
  ZeroConfig zero = SmallZero(3);
  zero.model_persistence_threshold = 64 + 64 + 192;  // layer 0's attention norm and qkv bias
  const ModelLayout layout = TinyLayout(TinyGpt(), zero, 2);
  std::set<std::string> persistent;
  for (const ParamUnit& unit : layout.units)
    for (const FlatParam& p : unit.params)
      if (unit.persistent) persistent.insert(p.spec.name);
  CHECK(persistent == std::set<std::string>{"layers.0.attention.norm.weight", "layers.0.attention.norm.bias",
                                            "layers.0.attention.qkv.bias"});
}

}  // namespace
}  // namespace ds
