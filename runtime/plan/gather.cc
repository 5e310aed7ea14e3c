// ZeRO-3: gathers units before segments need them and releases them after, within the byte budgets.
//
// Walks over the actions that read parameters. Before each, what it needs is gathered; then what the next one needs is
// prefetched, so that its transfer runs beside this one's computation. A unit stays gathered until its next use when
// fewer than max_reuse_distance parameters are read in between. When max_live_parameters is reached, the unit whose
// next use is farthest goes first (Belady), right after its last use.
//
// A prefetch that waits for the host's update of the step before is listed behind the action that it runs beside: who
// enqueues that action must not wait for the update.
#include <algorithm>
#include <map>

#include "runtime/plan/passes.h"

namespace ds {
namespace {

/// One life of a gathered unit, in positions among the parameter-reading actions.
struct Life {
  int unit = 0;
  size_t gathered_before = 0, released_after = 0;
  bool prefetched = false;
};

/// An action that reads sharded units.
struct Reader {
  size_t action = 0;
  std::vector<int> units;
};

class Budget {
 public:
  Budget(const ModelLayout& layout, const PlanOptions& options, std::vector<Reader> readers)
      : layout_(layout), options_(options), readers_(std::move(readers)) {
    FindNextUses();
  }

  std::vector<Life> Plan() {
    for (size_t k = 0; k < readers_.size(); ++k) {
      GatherNeeded(k);
      if (k + 1 < readers_.size()) Prefetch(k);
      ReleaseUnneeded(k);
    }
    return std::move(lives_);
  }

  const std::vector<Reader>& readers() const { return readers_; }

 private:
  static constexpr size_t kNever = SIZE_MAX;
  struct Live {
    size_t life = 0;      // index in lives_
    size_t last_use = 0;  // a reader
    size_t next_use = 0;
  };

  int64_t Numel(int unit) const { return layout_.units[unit].numel; }

  void FindNextUses() {
    next_.resize(readers_.size());
    read_before_.assign(readers_.size() + 1, 0);
    std::map<int, size_t> next;
    for (size_t k = readers_.size(); k-- > 0;) {
      for (int unit : readers_[k].units) {
        auto [it, fresh] = next.try_emplace(unit, k);
        next_[k].push_back(fresh ? kNever : it->second);
        it->second = k;
      }
    }
    for (size_t k = 0; k < readers_.size(); ++k) {
      int64_t read = 0;
      for (int unit : readers_[k].units) read += Numel(unit);
      read_before_[k + 1] = read_before_[k] + read;
    }
  }

  bool Uses(size_t k, int unit) const {
    const std::vector<int>& units = readers_[k].units;
    return std::find(units.begin(), units.end(), unit) != units.end();
  }

  void Begin(int unit, size_t before, size_t use) {
    live_[unit] = {lives_.size(), use, use};
    lives_.push_back({unit, before, use, before != use});
    live_elements_ += Numel(unit);
  }

  void End(int unit) {
    const Live& live = live_.at(unit);
    lives_[live.life].released_after = live.last_use;
    live_elements_ -= Numel(unit);
    live_.erase(unit);
  }

  /// Releases kept units that neither reader `k` nor, when prefetching, the next one reads until `elements` more fit.
  /// Returns whether they do.
  bool MakeRoom(int64_t elements, size_t k, bool prefetching) {
    std::vector<std::pair<size_t, int>> kept;  // next use, unit
    int64_t kept_elements = 0;
    for (const auto& [unit, live] : live_) {
      if (Uses(k, unit) || (prefetching && Uses(k + 1, unit))) continue;
      kept.push_back({live.next_use, unit});
      kept_elements += Numel(unit);
    }
    if (prefetching && live_elements_ - kept_elements + elements > options_.max_live_parameters) return false;
    std::sort(kept.begin(), kept.end());
    while (live_elements_ + elements > options_.max_live_parameters && !kept.empty()) {
      End(kept.back().second);
      kept.pop_back();
    }
    return live_elements_ + elements <= options_.max_live_parameters;
  }

  void GatherNeeded(size_t k) {
    for (int unit : readers_[k].units) {
      if (live_.count(unit)) continue;
      MakeRoom(Numel(unit), k, false);  // a segment that alone needs more than the budget gets it
      Begin(unit, k, k);
    }
  }

  void Prefetch(size_t k) {
    int64_t left = options_.prefetch_bucket_size;
    for (int unit : readers_[k + 1].units) {
      if (live_.count(unit)) continue;
      if (Numel(unit) > left || !MakeRoom(Numel(unit), k, true)) return;
      left -= Numel(unit);
      Begin(unit, k, k + 1);
    }
  }

  void ReleaseUnneeded(size_t k) {
    for (size_t i = 0; i < readers_[k].units.size(); ++i) {
      const int unit = readers_[k].units[i];
      const size_t next = next_[k][i];
      Live& live = live_.at(unit);
      live.last_use = k;
      live.next_use = next;
      if (next == kNever || read_before_[next] - read_before_[k + 1] > options_.max_reuse_distance) End(unit);
    }
  }

  const ModelLayout& layout_;
  const PlanOptions& options_;
  std::vector<Reader> readers_;
  std::vector<std::vector<size_t>> next_;  // of a reader, of each of its units: the next reader of it
  std::vector<int64_t> read_before_;       // parameters that readers 0..k-1 read
  std::map<int, Live> live_;
  int64_t live_elements_ = 0;
  std::vector<Life> lives_;
};

std::vector<Reader> FindReaders(const ModelLayout& layout, const Plan& plan) {
  std::vector<Reader> readers;
  for (size_t a = 0; a < plan.actions.size(); ++a) {
    if (!ReadsParameters(plan.actions[a])) continue;
    Reader reader{a, {}};
    for (int unit : layout.units_of[plan.actions[a].segment])
      if (ShardsParameters(layout.units[unit], plan.options)) reader.units.push_back(unit);
    if (!reader.units.empty()) readers.push_back(std::move(reader));
  }
  return readers;
}

/// Turns lives into buffers, Gathers and Releases, and binds the readers' params.
class Weaver {
 public:
  Weaver(const ModelLayout& layout, Plan& plan, const std::vector<Reader>& readers)
      : layout_(layout),
        plan_(plan),
        readers_(readers),
        working_(IndexResident(layout, plan).working),
        before_(readers.size()),
        behind_(readers.size()),
        after_(readers.size()),
        waits_(layout.units.size(), false),
        lives_of_(layout.units.size(), 0) {
    if (DefersUpdates(plan.options)) waits_ = OffloadedUnits(layout, plan.options);
  }

  void Add(const Life& life) {
    const int whole = NewBuffer(life.unit);
    const int buckets = static_cast<int>(layout_.units[life.unit].buckets.size());
    const bool behind = life.prefetched && waits_[life.unit] && lives_of_[life.unit] == 1;
    for (int b = 0; b < buckets; ++b) {
      Action gather = GatherBucket(layout_, plan_, life.unit, b, working_[life.unit], whole);
      gather.beside_last = behind;
      (behind ? behind_ : before_)[life.gathered_before].push_back(std::move(gather));
    }
    Action release = UnitAction(ActionKind::release, StreamKind::compute, life.unit);
    release.uses = {{Operand::whole, 0, whole, Access::update}};
    after_[life.released_after].push_back(std::move(release));
    const size_t first = life.gathered_before + (life.prefetched ? 1 : 0);
    for (size_t k = first; k <= life.released_after; ++k)
      BindParams(plan_.actions[readers_[k].action], life.unit, whole);
  }

  /// Puts what was added around the readers.
  void Weave() {
    std::vector<Action> actions;
    auto append = [&](std::vector<Action>& some) { std::move(some.begin(), some.end(), std::back_inserter(actions)); };
    size_t k = 0;
    for (size_t a = 0; a < plan_.actions.size(); ++a) {
      const bool reader = k < readers_.size() && readers_[k].action == a;
      if (reader) append(before_[k]);
      actions.push_back(std::move(plan_.actions[a]));
      if (!reader) continue;
      append(behind_[k]);
      append(after_[k++]);
    }
    plan_.actions = std::move(actions);
  }

 private:
  int NewBuffer(int unit) {
    Buffer buffer;
    buffer.name = "gathered." + layout_.units[unit].name + "." + std::to_string(lives_of_[unit]++);
    buffer.kind = BufferKind::gathered;
    buffer.numel = layout_.units[unit].numel;
    buffer.bytes = buffer.numel * static_cast<int64_t>(SizeOf(plan_.options.compute));
    buffer.state = StateKind::working;
    buffer.unit = unit;
    buffer.whole = true;
    return AddBuffer(plan_, std::move(buffer));
  }

  void BindParams(Action& action, int unit, int whole) const {
    const std::vector<int>& units = layout_.units_of[action.segment];
    const auto it = std::find(units.begin(), units.end(), unit);
    if (it == units.end()) return;
    action.uses.push_back({Operand::params, static_cast<int>(it - units.begin()), whole, Access::read});
  }

  const ModelLayout& layout_;
  Plan& plan_;
  const std::vector<Reader>& readers_;
  const std::vector<int> working_;                            // of a unit: its resident shard
  std::vector<std::vector<Action>> before_, behind_, after_;  // of a reader
  std::vector<bool> waits_;                                   // of a unit: for its update of the step before
  std::vector<int> lives_of_;                                 // of a unit, so far
};

}  // namespace

Action GatherBucket(const ModelLayout& layout, const Plan& plan, int unit, int bucket, int shard, int whole) {
  Action action = UnitAction(ActionKind::gather, StreamKind::gather, unit, bucket);
  action.uses = {{Operand::shard, 0, shard, Access::read}, {Operand::whole, 0, whole, Access::write}};
  const int64_t bytes = layout.units[unit].buckets[bucket].numel() * static_cast<int64_t>(SizeOf(plan.options.compute));
  action.bytes = RingBytes(bytes, layout.ranks);
  return action;
}

void GatherParameters(const ModelLayout& layout, Plan& plan) {
  Budget budget(layout, plan.options, FindReaders(layout, plan));
  const std::vector<Life> lives = budget.Plan();
  Weaver weaver(layout, plan, budget.readers());
  for (bool prefetched : {false, true})  // what an action itself needs comes before what the next one needs
    for (const Life& life : lives)
      if (life.prefetched == prefetched) weaver.Add(life);
  weaver.Weave();
}

}  // namespace ds
