// Brings state to the tier where actions compute on it, and back.
//
// Where an action uses a resident buffer of another tier it gets a staging buffer instead, of the one bucket that it
// names: filled by moves before it where it reads, emptied by moves after it where it writes. A file's state goes by
// way of the host. Moves come into the list ahead of their readers, so that they run beside the work before: kAhead
// readers of the same stream, a file's twice as many; but never before the bucket was last written. What an action left
// in staging serves the next one too, as long as nothing else was done in between.
#include <algorithm>
#include <map>
#include <tuple>

#include "runtime/plan/moves.h"

namespace ds {
namespace {

constexpr size_t kAhead = 2;

class StateMoves {
 public:
  StateMoves(const ModelLayout& layout, Plan& plan)
      : layout_(layout), plan_(plan), insertions_(plan.actions.size()), aliases_(plan.buffers.size()) {
    for (size_t b = 0; b < plan.buffers.size(); ++b)
      if (plan.buffers[b].alias_of >= 0) aliases_[plan.buffers[b].alias_of].push_back(static_cast<int>(b));
  }

  void Run() {
    for (size_t a = 0; a < plan_.actions.size(); ++a) {
      const Tier tier = TierOf(plan_.actions[a].stream);
      bool moved = false;
      for (size_t u = 0; u < plan_.actions[a].uses.size(); ++u) {
        const Buffer& buffer = plan_.buffers[plan_.actions[a].uses[u].buffer];
        if (buffer.kind != BufferKind::resident || buffer.tier == tier) continue;
        moved = Bring(a, u, tier) || moved;
      }
      for (const Use& use : plan_.actions[a].uses)
        if (use.access != Access::read) NoteWrite(use.buffer, plan_.actions[a].bucket, a);
      if (moved) readers_[static_cast<int>(plan_.actions[a].stream)].push_back(a);
    }
    insertions_.Weave(plan_);
  }

 private:
  using Piece = std::pair<int, int>;  // resident buffer, bucket

  /// A copy of a piece on another tier, that is still what the piece is.
  struct Copy {
    int staging = -1;
    size_t used = 0;  // by this action
  };

  int64_t PieceElements(int unit, int bucket) const {
    return layout_.units[unit].buckets[bucket].numel() / layout_.ranks;
  }

  int NewStaging(int resident, int bucket, Tier tier) {
    Buffer staging;
    const Buffer& of = plan_.buffers[resident];
    const int number = copies_of_[{resident, bucket}]++;
    staging.name = of.name + "." + std::to_string(bucket) + "." + std::to_string(number) + "@" + NameOf(tier);
    staging.kind = BufferKind::staging;
    staging.tier = tier;
    staging.numel = PieceElements(of.unit, bucket);
    staging.bytes = staging.numel * static_cast<int64_t>(SizeOf(DTypeOfState(of.state, plan_.options.compute)));
    staging.state = of.state;
    staging.unit = of.unit;
    staging.slot = of.slot;
    staging.bucket = bucket;
    return AddBuffer(plan_, std::move(staging));
  }

  Action Move(int from, int to, bool pending) const {
    const Buffer& staging = plan_.buffers[from].kind == BufferKind::staging ? plan_.buffers[from] : plan_.buffers[to];
    Action move = MoveBetween(plan_, from, to, staging.bytes);
    move.unit = staging.unit;
    move.slot = staging.slot;
    move.bucket = staging.bucket;
    move.state = staging.state;
    move.pending = pending;
    return move;
  }

  /// Gives use `u` of action `a` a staging buffer on `tier`. Returns whether something must be moved for it to begin.
  bool Bring(size_t a, size_t u, Tier tier) {
    const Action& action = plan_.actions[a];
    const Use use = action.uses[u];
    const Piece piece(use.buffer, action.bucket);
    const Tier home = plan_.buffers[use.buffer].tier;
    int staging = -1;
    bool moved = false;
    if (use.access != Access::write) {
      std::tie(staging, moved) = Fetched(a, piece, tier);
    } else {
      staging = NewStaging(use.buffer, action.bucket, tier);
    }
    plan_.actions[a].uses[u].buffer = staging;
    if (use.access == Access::read) {
      latest_[{piece.first, piece.second, tier}] = {staging, a};
      return moved;
    }
    NoteWrite(piece.first, piece.second, a);
    latest_[{piece.first, piece.second, tier}] = {staging, a};
    int from = staging;
    for (Tier at = tier; at != home;) {
      at = Towards(at, home);
      const int to = at == home ? use.buffer : NewStaging(use.buffer, action.bucket, at);
      insertions_.After(a, Move(from, to, action.pending));
      if (at != home) latest_[{piece.first, piece.second, at}] = {to, a};
      from = to;
    }
    return moved;
  }

  /// The staging buffer on `tier` that holds the piece before action `a`, and whether moves were added for it.
  std::pair<int, bool> Fetched(size_t a, Piece piece, Tier tier) {
    const auto known = latest_.find({piece.first, piece.second, tier});
    if (known != latest_.end() && StillThere(known->second.used, a)) return {known->second.staging, false};
    std::vector<Action> moves;
    const Tier home = plan_.buffers[piece.first].tier;
    int from = piece.first;
    for (Tier at = home; at != tier;) {
      at = Towards(at, tier);
      const int to = NewStaging(piece.first, piece.second, at);
      moves.push_back(Move(from, to, plan_.actions[a].pending));
      from = to;
    }
    for (size_t m = 0; m < moves.size(); ++m) {
      const size_t hops_left = moves.size() - m;
      insertions_.Before(Begin(a, piece, hops_left * kAhead), std::move(moves[m]));
    }
    return {from, true};
  }

  /// Whether what action `used` left in staging is worth keeping until `a`: only work on this very piece lies between.
  /// What is pending may be left out, and then leaves nothing.
  bool StillThere(size_t used, size_t a) const {
    if (plan_.actions[used].pending != plan_.actions[a].pending) return false;
    for (size_t between = used + 1; between < a; ++between)
      if (plan_.actions[between].unit != plan_.actions[a].unit ||
          plan_.actions[between].bucket != plan_.actions[a].bucket)
        return false;
    return true;
  }

  /// Where a move for action `a` comes into the list: before so many earlier readers, behind what last wrote the piece.
  size_t Begin(size_t a, Piece piece, size_t ahead) const {
    const auto found = readers_.find(static_cast<int>(plan_.actions[a].stream));
    size_t begin = a;
    if (found != readers_.end()) {
      const std::vector<size_t>& readers = found->second;
      if (!readers.empty()) begin = readers[readers.size() > ahead ? readers.size() - ahead : 0];
    }
    const auto written = written_.find(piece);
    if (written != written_.end()) begin = std::max(begin, written->second + 1);
    return std::min(begin, a);
  }

  void NoteWrite(int buffer, int bucket, size_t a) {
    const Buffer& b = plan_.buffers[buffer];
    if (b.kind != BufferKind::resident) return;
    const int home = b.alias_of >= 0 ? b.alias_of : buffer;
    const int buckets = static_cast<int>(layout_.units[b.unit].buckets.size());
    for (int i = bucket < 0 ? 0 : bucket; i < (bucket < 0 ? buckets : bucket + 1); ++i) {
      NoteWriteOf({home, i}, a);
      for (int alias : aliases_[home]) NoteWriteOf({alias, i}, a);
    }
  }
  void NoteWriteOf(Piece piece, size_t a) {
    written_[piece] = a;
    for (Tier tier : {Tier::device, Tier::host}) latest_.erase({piece.first, piece.second, tier});
  }

  const ModelLayout& layout_;
  Plan& plan_;
  Insertions insertions_;
  std::vector<std::vector<int>> aliases_;  // of a resident buffer
  std::map<Piece, int> copies_of_;
  std::map<Piece, size_t> written_;                    // by which action, last
  std::map<std::tuple<int, int, Tier>, Copy> latest_;  // of a piece on a tier
  std::map<int, std::vector<size_t>> readers_;         // of a stream: actions that moves were added for
};

}  // namespace

void MoveState(const ModelLayout& layout, Plan& plan) {
  const bool any = std::any_of(plan.buffers.begin(), plan.buffers.end(), [](const Buffer& buffer) {
    return buffer.kind == BufferKind::resident && buffer.tier != Tier::device;
  });
  if (any) StateMoves(layout, plan).Run();
}

}  // namespace ds
