#include "runtime/plan/schedule.h"

#include <algorithm>
#include <stdexcept>

namespace ds {
namespace {

using Order = std::vector<Work>;

/// Appends work of one stage; each kind of pass of a chunk takes the micro-batches in their order.
class StageOrder {
 public:
  explicit StageOrder(int chunks) : next_(static_cast<size_t>(chunks)) {}

  void Forward(int chunk) { Add(WorkKind::forward, chunk, next_[static_cast<size_t>(chunk)].forward++); }
  void Backward(int chunk) { Add(WorkKind::backward, chunk, next_[static_cast<size_t>(chunk)].input++); }
  void Input(int chunk) { Add(WorkKind::backward_input, chunk, next_[static_cast<size_t>(chunk)].input++); }
  void Weight(int chunk) { Add(WorkKind::backward_weight, chunk, next_[static_cast<size_t>(chunk)].weight++); }

  int forwards(int chunk) const { return next_[static_cast<size_t>(chunk)].forward; }
  int inputs(int chunk) const { return next_[static_cast<size_t>(chunk)].input; }
  int weights(int chunk) const { return next_[static_cast<size_t>(chunk)].weight; }
  /// Without the work on micro-batches that there are not.
  Order Take(int micro_batches) {
    std::erase_if(order_, [&](const Work& work) { return work.micro_batch >= micro_batches; });
    return std::move(order_);
  }

 private:
  struct Next {
    int forward = 0, input = 0, weight = 0;
  };
  void Add(WorkKind kind, int chunk, int micro_batch) { order_.push_back({kind, chunk, micro_batch}); }

  std::vector<Next> next_;
  Order order_;
};

Order GPipe(const ScheduleShape& shape, int stage) {
  StageOrder order(shape.chunks());
  for (int m = 0; m < shape.micro_batches; ++m) order.Forward(stage);
  for (int m = 0; m < shape.micro_batches; ++m) order.Backward(stage);
  return order.Take(shape.micro_batches);
}

Order OneFOneB(const ScheduleShape& shape, int stage) {
  const int m = shape.micro_batches, warmup = std::min(m, shape.stages - 1 - stage);
  StageOrder order(shape.chunks());
  for (int i = 0; i < warmup; ++i) order.Forward(stage);
  for (int i = warmup; i < m; ++i) {
    order.Forward(stage);
    order.Backward(stage);
  }
  for (int i = 0; i < warmup; ++i) order.Backward(stage);
  return order.Take(m);
}

/// As 1f1b keeps stages - stage micro-batches, this may keep gradients of weights for `stage` more: as many as the
/// first stage of 1f1b keeps, on every stage.
Order ZeroBubbleH1(const ScheduleShape& shape, int stage) {
  const int m = shape.micro_batches, warmup = std::min(m, shape.stages - 1 - stage);
  StageOrder order(shape.chunks());
  for (int i = 0; i < warmup; ++i) order.Forward(stage);
  for (int i = 0; i < m; ++i) {
    if (i + warmup < m) order.Forward(stage);
    order.Input(stage);
    if (i >= stage) order.Weight(stage);
  }
  while (order.weights(stage) < m) order.Weight(stage);
  return order.Take(m);
}

/// The order in which one stage's forwards pass over its chunks: groups of as many micro-batches as there are stages,
/// each through every chunk. `backward`: the chunks from the last to the first.
std::vector<int> ChunkSequence(const ScheduleShape& shape, int stage, bool backward) {
  std::vector<int> chunks;
  for (int begin = 0; begin < shape.micro_batches; begin += shape.stages) {
    const int group = std::min(shape.stages, shape.micro_batches - begin);
    for (int v = 0; v < shape.virtual_stages; ++v) {
      const int chunk = (backward ? shape.virtual_stages - 1 - v : v) * shape.stages + stage;
      chunks.insert(chunks.end(), static_cast<size_t>(group), chunk);
    }
  }
  return chunks;
}

/// `more`: forwards before the first backward, beyond what the paper has.
Order Interleaved(const ScheduleShape& shape, int stage, int more) {
  const std::vector<int> forwards = ChunkSequence(shape, stage, false), backwards = ChunkSequence(shape, stage, true);
  const size_t all = forwards.size();
  const size_t warmup = std::min(
      all, static_cast<size_t>((shape.stages - 1 - stage) * 2 + (shape.virtual_stages - 1) * shape.stages + more));
  StageOrder order(shape.chunks());
  for (size_t i = 0; i < warmup; ++i) order.Forward(forwards[i]);
  for (size_t i = warmup; i < all; ++i) {
    order.Forward(forwards[i]);
    order.Backward(backwards[i - warmup]);
  }
  for (size_t i = all - warmup; i < all; ++i) order.Backward(backwards[i]);
  return order.Take(shape.micro_batches);
}

/// Written for at least 2 * stages - 1 micro-batches; of fewer, the work on those that there are.
Order ZeroBubbleV(const ScheduleShape& shape, int stage) {
  const int p = shape.stages, down = stage, up = 2 * p - 1 - stage;
  const int m = std::max(2 * p - 1, shape.micro_batches);
  StageOrder order(shape.chunks());
  const auto both = [&](int chunk) {
    order.Input(chunk);
    order.Weight(chunk);
  };
  for (int i = 0; i < 2 * (p - stage) - 1; ++i) order.Forward(down);
  for (int i = 0; i < stage; ++i) {
    order.Forward(up);
    order.Forward(down);
  }
  for (int i = 0; i < p - stage; ++i) {
    order.Forward(up);
    both(up);
  }
  while (order.forwards(up) < order.forwards(down) || order.forwards(down) < m) {
    if (order.forwards(down) < m) order.Forward(down);
    both(down);
    order.Forward(up);
    both(up);
  }
  for (int i = 0; i < stage; ++i) {
    order.Input(down);
    order.Input(up);
  }
  for (int i = 0; i < p - stage; ++i) {
    order.Input(down);
    order.Weight(down);
  }
  while (order.weights(up) < order.inputs(up)) order.Weight(up);
  while (order.weights(down) < order.inputs(down)) order.Weight(down);
  return order.Take(shape.micro_batches);
}

template <class F>
std::vector<Order> OfStages(const ScheduleShape& shape, F f) {
  std::vector<Order> stages;
  for (int stage = 0; stage < shape.stages; ++stage) stages.push_back(f(shape, stage));
  return stages;
}

/// Where micro-batches do not fill the last group, the paper's order may wait for itself: then with the fewest forwards
/// more in front with which it does not. All of them in front never do.
std::vector<Order> Interleaved(const ScheduleShape& shape) {
  const std::vector<WorkCost> costs(static_cast<size_t>(shape.chunks()));
  for (int more = 0;; ++more) {
    std::vector<Order> stages =
        OfStages(shape, [&](const ScheduleShape&, int stage) { return Interleaved(shape, stage, more); });
    if (shape.micro_batches % shape.stages == 0 || Simulate(shape, stages, costs).stuck.empty()) return stages;
  }
}

}  // namespace

int ScheduleShape::StageOf(int chunk) const {
  if (kind == ScheduleKind::zb_v) return chunk < stages ? chunk : 2 * stages - 1 - chunk;
  return chunk % stages;
}

std::vector<std::vector<Work>> OrderWork(const ScheduleShape& shape) {
  const int chunks = shape.kind == ScheduleKind::zb_v          ? 2
                     : shape.kind == ScheduleKind::interleaved ? shape.virtual_stages
                                                               : 1;
  if (shape.stages < 1 || shape.micro_batches < 1 || shape.virtual_stages < 1 || shape.virtual_stages != chunks)
    throw std::invalid_argument("OrderWork: " + std::to_string(shape.stages) + " stages of " +
                                std::to_string(shape.virtual_stages) + " chunks, " +
                                std::to_string(shape.micro_batches) + " micro-batches");
  std::vector<Order> stages;
  switch (shape.kind) {
    case ScheduleKind::gpipe:
      stages = OfStages(shape, GPipe);
      break;
    case ScheduleKind::one_f_one_b:
      stages = OfStages(shape, OneFOneB);
      break;
    case ScheduleKind::interleaved:
      stages = Interleaved(shape);
      break;
    case ScheduleKind::zb_h1:
      stages = OfStages(shape, ZeroBubbleH1);
      break;
    case ScheduleKind::zb_v:
      stages = OfStages(shape, ZeroBubbleV);
      break;
  }
  if (!shape.training)
    for (Order& order : stages) std::erase_if(order, [](const Work& work) { return work.kind != WorkKind::forward; });
  return stages;
}

std::string ToText(const Work& work) {
  static constexpr char kLetters[] = {'F', 'B', 'I', 'W'};
  return std::string(1, kLetters[static_cast<int>(work.kind)]) + std::to_string(work.chunk) + "." +
         std::to_string(work.micro_batch);
}

}  // namespace ds
