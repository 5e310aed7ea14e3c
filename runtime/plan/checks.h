// The parts of CheckPlan, each in a file of its own. Private to runtime/plan.
#pragma once

#include <string>
#include <vector>

#include "runtime/plan/planner.h"

namespace ds {

/// Faults found so far; those of one check beyond a screenful are dropped, since one defect often breaks all that
/// follows.
class Faults {
 public:
  Faults(const ModelLayout& layout, const Plan& plan) : layout_(layout), plan_(plan) {}

  void Add(const std::string& text) {
    if (list_.size() < most_) list_.push_back(text);
  }
  /// Another check begins, whose faults have room of their own.
  void NextCheck() { most_ = list_.size() + kMost; }
  void At(size_t action, const std::string& text) { Add(Describe(layout_, plan_, action) + ": " + text); }

  bool empty() const { return list_.empty(); }
  std::vector<std::string> Take() { return std::move(list_); }

 private:
  static constexpr size_t kMost = 40;
  const ModelLayout& layout_;
  const Plan& plan_;
  std::vector<std::string> list_;
  size_t most_ = kMost;
};

/// Indices, streams, operands and sizes: what must hold before the other checks may look at the plan.
void CheckShape(const ModelLayout& layout, const Plan& plan, Faults& faults);
/// Every action that the step needs is there, once.
void CheckComplete(const ModelLayout& layout, const Plan& plan, Faults& faults);
/// Conflicting uses are ordered, and nobody reads memory that nothing wrote or that was handed on.
void CheckOrder(const ModelLayout& layout, const Plan& plan, Faults& faults);
/// Every operand holds the value that its action needs: the right micro-batch, complete, reduced, gathered, not stale.
void CheckValues(const ModelLayout& layout, const Plan& plan, Faults& faults);

}  // namespace ds
