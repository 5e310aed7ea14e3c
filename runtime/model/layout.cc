#include "runtime/model/layout.h"

#include <algorithm>
#include <utility>

namespace ds {
namespace {

int64_t AlignUp(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

/// Sets the parameters' offsets, the buckets and the unit's size.
void Pack(ParamUnit& unit, int64_t bucket_size, int ranks) {
  int64_t end = 0;
  for (FlatParam& p : unit.params) {
    p.offset = end;
    end = AlignUp(end + p.numel(), kParamAlignment);
  }
  const int64_t quantum = ranks * kParamAlignment;
  const int64_t step = std::max(bucket_size / quantum * quantum, quantum);
  for (int64_t begin = 0; begin < end; begin += step)
    unit.buckets.push_back({begin, begin + std::min(step, AlignUp(end - begin, quantum))});
  unit.numel = unit.buckets.empty() ? 0 : unit.buckets.back().end;
}

class LayoutBuilder {
 public:
  LayoutBuilder(std::vector<SegmentSpec> segments, const ZeroConfig& zero, int ranks) : zero_(zero) {
    layout_.ranks = ranks;
    layout_.segments = std::move(segments);
  }

  ModelLayout Build() {
    for (const SegmentSpec& segment : layout_.segments) AddSegment(segment);
    const int64_t bucket_size = std::min(zero_.reduce_bucket_size, zero_.allgather_bucket_size);
    for (ParamUnit& unit : layout_.units) Pack(unit, bucket_size, layout_.ranks);
    AddSlots();
    return std::move(layout_);
  }

 private:
  void AddSegment(const SegmentSpec& segment) {
    std::vector<ParamRef> refs;
    int large = -1, small = -1;  // the segment's units, once it has them
    for (size_t i = 0; i < segment.params.size(); ++i) {
      const ParamSpec& param = segment.params[i];
      const bool persistent = TakePersistent(param.shape.numel());
      if (segment.kind == SegmentKind::embedding && i == 0 && TiedHead()) {
        token_table_ = Place(NewUnit("embedding.tokens", persistent), param);
        refs.push_back(token_table_);
        continue;
      }
      int& unit = persistent ? small : large;
      if (unit < 0) unit = NewUnit(segment.name + (persistent ? ".small" : ""), persistent);
      refs.push_back(Place(unit, param));
    }
    if (segment.tied) refs.push_back(token_table_);

    std::vector<int> units;
    for (const ParamRef& ref : refs) units.push_back(ref.unit);
    std::sort(units.begin(), units.end());
    units.erase(std::unique(units.begin(), units.end()), units.end());
    layout_.params.push_back(std::move(refs));
    layout_.units_of.push_back(std::move(units));
  }

  void AddSlots() {
    for (size_t s = 0; s < layout_.segments.size(); ++s) {
      std::vector<int> slots;
      for (int unit : layout_.units_of[s]) {
        slots.push_back(static_cast<int>(layout_.slots.size()));
        layout_.slots.push_back({unit, static_cast<int>(s)});
      }
      layout_.slots_of.push_back(std::move(slots));
    }
  }

  bool TiedHead() const { return layout_.segments.back().tied; }

  bool TakePersistent(int64_t numel) {
    if (numel >= zero_.param_persistence_threshold) return false;
    if (numel > zero_.model_persistence_threshold - persistent_taken_) return false;
    persistent_taken_ += numel;
    return true;
  }

  int NewUnit(std::string name, bool persistent) {
    ParamUnit unit;
    unit.name = std::move(name);
    unit.persistent = persistent;
    layout_.units.push_back(std::move(unit));
    return static_cast<int>(layout_.units.size()) - 1;
  }

  ParamRef Place(int unit, const ParamSpec& param) {
    std::vector<FlatParam>& params = layout_.units[unit].params;
    params.push_back({param, 0});
    return {unit, static_cast<int>(params.size()) - 1};
  }

  const ZeroConfig& zero_;
  ModelLayout layout_;
  ParamRef token_table_;
  int64_t persistent_taken_ = 0;
};

}  // namespace

std::vector<ShardRange> ModelLayout::ShardRanges(int unit, int rank) const {
  std::vector<ShardRange> ranges;
  for (const Bucket& bucket : units[unit].buckets) {
    const int64_t count = bucket.numel() / ranks;
    ranges.push_back({bucket.begin + rank * count, bucket.begin / ranks, count});
  }
  return ranges;
}

int64_t ModelLayout::ParameterCount() const {
  int64_t count = 0;
  for (const ParamUnit& unit : units) {
    for (const FlatParam& param : unit.params) {
      const Shape& shape = param.spec.shape;
      count += param.spec.real_rows > 0 ? shape.numel() / shape[0] * param.spec.real_rows : shape.numel();
    }
  }
  return count;
}

ModelLayout BuildLayout(std::vector<SegmentSpec> segments, const ZeroConfig& zero, int ranks) {
  return LayoutBuilder(std::move(segments), zero, ranks).Build();
}

}  // namespace ds
