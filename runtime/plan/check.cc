#include "runtime/plan/check.h"

#include "runtime/plan/checks.h"

namespace ds {

std::vector<std::string> CheckPlan(const ModelLayout& layout, const Plan& plan) {
  Faults faults(layout, plan);
  CheckShape(layout, plan, faults);
  if (!faults.empty()) return faults.Take();
  CheckComplete(layout, plan, faults);
  CheckOrder(layout, plan, faults);
  CheckValues(layout, plan, faults);
  return faults.Take();
}

}  // namespace ds
