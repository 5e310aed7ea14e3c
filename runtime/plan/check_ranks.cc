// Runs the plans of all ranks against one another, in time without duration: a collective is done when every rank of
// its group has reached it, a message when sender and receiver have. Ranks of one pipeline stage whose plans are equal
// behave alike, so one of each is enough: thousands of ranks cost a few. Where ranks of a stage differ, every rank is
// followed.
#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "runtime/plan/check.h"
#include "runtime/plan/memory_map.h"
#include "runtime/plan/passes.h"
#include "runtime/plan/planner.h"

namespace ds {
namespace {

bool IsCollective(const Action& action) {
  return action.kind == ActionKind::gather || action.kind == ActionKind::reduce || action.kind == ActionKind::norm;
}

/// What all ranks of a collective must agree on, and the two of a message.
auto Collective(const Action& a) { return std::tuple(a.kind, a.unit, a.slot, a.bucket, a.micro_batch, a.all, a.bytes); }
auto Carried(const Action& a) {
  return std::tuple(a.segment, a.unit, a.slot, a.bucket, a.micro_batch, a.state, a.gradient, a.bytes);
}
auto Met(const Action& a) { return std::tuple(a.stream, a.waits, a.peer, Collective(a), Carried(a)); }

bool SameRole(const Plan& a, const Plan& b) {
  if (a.options.pipeline.stage != b.options.pipeline.stage || a.options.compute != b.options.compute) return false;
  if (a.actions.size() != b.actions.size()) return false;
  for (size_t i = 0; i < a.actions.size(); ++i)
    if (Met(a.actions[i]) != Met(b.actions[i])) return false;
  return true;
}

/// The stream of the rank at a message's other end.
StreamKind Opposite(StreamKind stream) {
  switch (stream) {
    case StreamKind::send_next:
      return StreamKind::receive_previous;
    case StreamKind::receive_previous:
      return StreamKind::send_next;
    case StreamKind::send_previous:
      return StreamKind::receive_next;
    case StreamKind::receive_next:
      return StreamKind::send_previous;
    default:
      return stream;
  }
}

/// One rank's progress.
struct Role {
  int rank = 0;
  const Plan* plan = nullptr;
  std::array<std::vector<int>, kStreams> queue{};  // actions of each stream
  std::array<size_t, kStreams> next{};             // in queue
  std::vector<bool> done;

  Role(int r, const Plan& p) : rank(r), plan(&p), done(p.actions.size(), false) {
    for (size_t a = 0; a < p.actions.size(); ++a)
      queue[static_cast<int>(p.actions[a].stream)].push_back(static_cast<int>(a));
  }
  int stage() const { return plan->options.pipeline.stage; }
  bool Finished(int stream) const { return next[stream] == queue[stream].size(); }
  int Head(int stream) const { return queue[stream][next[stream]]; }
  const Action& At(int stream) const { return plan->actions[Head(stream)]; }
  bool Ready(int stream) const {
    if (Finished(stream)) return false;
    for (int wait : At(stream).waits)
      if (!done[wait]) return false;
    return true;
  }
  bool Meets(int stream) const { return Ready(stream) && (IsCollective(At(stream)) || IsMessage(At(stream))); }
  void Advance(int stream) { done[Head(stream)] = true, ++next[stream]; }
};

class RankChecker {
 public:
  RankChecker(const ModelLayout& layout, const std::vector<Plan>& plans, bool by_role) : layout_(layout) {
    std::map<int, const Plan*> first;  // of a stage
    for (const Plan& plan : plans) first.try_emplace(plan.options.pipeline.stage, &plan);
    by_role = by_role && std::all_of(plans.begin(), plans.end(), [&](const Plan& plan) {
                return SameRole(plan, *first[plan.options.pipeline.stage]);
              });
    std::map<int, int> ranks;  // of a stage, so far
    for (size_t r = 0; r < plans.size(); ++r) {
      const int stage = plans[r].options.pipeline.stage, place = ranks[stage]++;
      if (by_role && place > 0) continue;
      at_[{stage, place}] = roles_.size();
      of_stage_[stage].push_back(roles_.size());
      everybody_.push_back(roles_.size());
      place_.push_back(place);
      roles_.emplace_back(static_cast<int>(r), plans[r]);
    }
  }

  std::vector<std::string> Run() {
    bool moved = true;
    while (moved && faults_.empty()) {
      moved = false;
      for (int s = 0; s < kStreams && faults_.empty(); ++s) {
        for (size_t r = 0; r < roles_.size() && faults_.empty(); ++r) {
          Role& role = roles_[r];
          while (role.Ready(s) && !role.Meets(s)) role.Advance(s), moved = true;
          if (!role.Meets(s)) continue;
          const Action& action = role.At(s);
          moved = (IsMessage(action) ? DoMessage(r, s) : DoCollective(s, Group(role, action))) || moved;
        }
      }
    }
    if (faults_.empty()) ReportStuck();
    return std::move(faults_);
  }

 private:
  std::string Where(const Role& role, int stream) const {
    return "rank " + std::to_string(role.rank) + " is at " + Describe(layout_, *role.plan, role.Head(stream));
  }

  /// The roles of an action's communicator.
  const std::vector<size_t>& Group(const Role& role, const Action& action) const {
    return action.kind == ActionKind::norm ? everybody_ : of_stage_.at(role.stage());
  }

  void Differ(const Role& a, int of_a, const Role& b, int of_b) {
    faults_.push_back(std::string("the ") + NameOf(static_cast<StreamKind>(of_a)) + " communicator: " + Where(a, of_a) +
                      " while " + Where(b, of_b));
  }

  /// Does the collective that all ranks of the group have reached on the stream, if they have.
  bool DoCollective(int s, const std::vector<size_t>& group) {
    for (size_t r : group)
      if (!roles_[r].Meets(s)) return false;
    const Role& first = roles_[group.front()];
    for (size_t r : group) {
      if (Collective(first.At(s)) == Collective(roles_[r].At(s))) continue;
      Differ(first, s, roles_[r], s);
      return false;
    }
    for (size_t r : group) roles_[r].Advance(s);
    return true;
  }

  /// Does the message whose one end role `r` has reached on the stream, if the other end is reached too.
  bool DoMessage(size_t r, int s) {
    Role& role = roles_[r];
    const Action& action = role.At(s);
    const auto peer = at_.find({action.peer, place_[r]});
    if (peer == at_.end()) {
      faults_.push_back(Where(role, s) + ": there is no plan of that stage");
      return false;
    }
    Role& other = roles_[peer->second];
    const int opposite = static_cast<int>(Opposite(static_cast<StreamKind>(s)));
    if (!other.Meets(opposite)) return false;
    const Action& theirs = other.At(opposite);
    const bool opposed = IsMessage(theirs) && theirs.kind != action.kind && theirs.peer == role.stage();
    // What a tied unit's stages send each other is in one order for both, so ends that differ never will meet.
    if (!opposed || Carried(action) != Carried(theirs) || role.plan->options.compute != other.plan->options.compute) {
      Differ(role, s, other, opposite);
      return false;
    }
    role.Advance(s);
    other.Advance(opposite);
    return true;
  }

  void ReportStuck() {
    for (int s = 0; s < kStreams; ++s)
      for (const Role& role : roles_)
        if (!role.Finished(s))
          faults_.push_back(std::string("deadlock on the ") + NameOf(static_cast<StreamKind>(s)) +
                            " stream: " + Where(role, s) + ", which never begins");
  }

  const ModelLayout& layout_;
  std::vector<Role> roles_;
  std::vector<int> place_;                       // of a role, among its stage's ranks
  std::map<std::pair<int, int>, size_t> at_;     // the role of a stage's rank
  std::map<int, std::vector<size_t>> of_stage_;  // roles
  std::vector<size_t> everybody_;
  std::vector<std::string> faults_;
};

}  // namespace

std::vector<std::string> CheckRanks(const ModelLayout& layout, const std::vector<Plan>& plans, bool by_role) {
  if (plans.empty()) return {};
  return RankChecker(layout, plans, by_role).Run();
}

}  // namespace ds
