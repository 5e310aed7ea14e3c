// Runs the plans of all ranks against one another, in time without duration: a collective is done when every rank has
// reached it. Ranks whose plans are equal behave alike, so one of each role is enough: thousands of ranks cost a few.
#include <array>
#include <tuple>

#include "runtime/plan/check.h"
#include "runtime/plan/memory_map.h"
#include "runtime/plan/planner.h"

namespace ds {
namespace {

bool IsCollective(const Action& action) {
  return action.kind == ActionKind::gather || action.kind == ActionKind::reduce || action.kind == ActionKind::norm;
}

/// What all ranks of a collective must agree on.
auto Collective(const Action& a) { return std::tuple(a.kind, a.unit, a.slot, a.bucket, a.micro_batch, a.all, a.bytes); }

bool SameRole(const Plan& a, const Plan& b) {
  if (a.actions.size() != b.actions.size()) return false;
  for (size_t i = 0; i < a.actions.size(); ++i) {
    const Action &x = a.actions[i], &y = b.actions[i];
    if (x.stream != y.stream || x.waits != y.waits || Collective(x) != Collective(y)) return false;
  }
  return true;
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
  bool Finished(int stream) const { return next[stream] == queue[stream].size(); }
  int Head(int stream) const { return queue[stream][next[stream]]; }
  bool Ready(int stream) const {
    if (Finished(stream)) return false;
    for (int wait : plan->actions[Head(stream)].waits)
      if (!done[wait]) return false;
    return true;
  }
  bool AtCollective(int stream) const { return Ready(stream) && IsCollective(plan->actions[Head(stream)]); }
  void Advance(int stream) { done[Head(stream)] = true, ++next[stream]; }
};

class RankChecker {
 public:
  RankChecker(const ModelLayout& layout, const std::vector<Plan>& plans) : layout_(layout) {
    for (size_t r = 0; r < plans.size(); ++r) {
      bool known = false;
      for (const Role& role : roles_) known = known || SameRole(*role.plan, plans[r]);
      if (!known) roles_.emplace_back(static_cast<int>(r), plans[r]);
    }
  }

  std::vector<std::string> Run() {
    bool moved = true;
    while (moved && faults_.empty()) {
      moved = false;
      for (int s = 0; s < kStreams; ++s) {
        for (Role& role : roles_)
          while (role.Ready(s) && !role.AtCollective(s)) role.Advance(s), moved = true;
        moved = DoCollective(s) || moved;
      }
    }
    if (faults_.empty()) ReportStuck();
    return std::move(faults_);
  }

 private:
  std::string Where(const Role& role, int stream) const {
    return "rank " + std::to_string(role.rank) + " is at " + Describe(layout_, *role.plan, role.Head(stream));
  }

  /// Does the collective that all ranks have reached on the stream, if they have.
  bool DoCollective(int s) {
    for (const Role& role : roles_)
      if (!role.AtCollective(s)) return false;
    const Role& first = roles_.front();
    for (const Role& role : roles_) {
      const Action &a = first.plan->actions[first.Head(s)], &b = role.plan->actions[role.Head(s)];
      if (Collective(a) == Collective(b)) continue;
      faults_.push_back(std::string("the ") + NameOf(static_cast<StreamKind>(s)) + " communicator: " + Where(first, s) +
                        " while " + Where(role, s));
      return false;
    }
    for (Role& role : roles_) role.Advance(s);
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
  std::vector<std::string> faults_;
};

}  // namespace

std::vector<std::string> CheckRanks(const ModelLayout& layout, const std::vector<Plan>& plans) {
  if (plans.empty()) return {};
  return RankChecker(layout, plans).Run();
}

}  // namespace ds
