#include "runtime/plan/check.h"

#include "runtime/plan/checks.h"

namespace ds {
namespace {

/// Every buffer refers to units, slots and buffers that exist: everything after this indexes by them.
void CheckReferences(const ModelLayout& layout, const Plan& plan, Faults& faults) {
  auto in = [](int index, size_t size) { return index >= 0 && static_cast<size_t>(index) < size; };
  for (const Buffer& buffer : plan.buffers) {
    const bool of_unit = buffer.kind == BufferKind::resident || buffer.kind == BufferKind::gathered ||
                         buffer.kind == BufferKind::gradient;
    const bool good = (!of_unit || in(buffer.unit, layout.units.size())) &&
                      (!of_unit || buffer.state != StateKind::gradient || in(buffer.slot, layout.slots.size())) &&
                      (buffer.alias_of < 0 || in(buffer.alias_of, plan.buffers.size()));
    if (!good) faults.Add("buffer " + buffer.name + " is of no unit, slot or buffer that exists");
  }
}

}  // namespace

std::vector<std::string> CheckPlan(const ModelLayout& layout, const Plan& plan) {
  Faults faults(layout, plan);
  CheckReferences(layout, plan, faults);
  if (!faults.empty()) return faults.Take();
  CheckShape(layout, plan, faults);
  if (!faults.empty()) return faults.Take();
  CheckComplete(layout, plan, faults);
  faults.NextCheck();
  CheckOrder(layout, plan, faults);
  faults.NextCheck();
  CheckValues(layout, plan, faults);
  return faults.Take();
}

}  // namespace ds
