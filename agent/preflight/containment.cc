// What this node can contain a job with.
#include "agent/contain/contain.h"
#include "agent/preflight/preflight.h"

namespace ds {

namespace pb = ::deepshard::v1;

void LookAtContainment(const pb::Bootstrap& bootstrap, pb::NodeFacts& found, pb::NodeFacts::Check& check) {
  const Containment& current = CurrentContainment();
  const ContainmentFacts facts = FindContainment(bootstrap.look_closer());
  for (const std::string& level : facts.possible) found.add_containment(level);
  found.set_contained(current.level);
  found.set_containment_refused(facts.refused);
  const std::string& asked = bootstrap.contain();
  if (asked.empty() || asked == "auto" || current.level == asked) return;
  check.set_passed(false);
  check.set_text("launch.contain is " + asked + ", and the node does not allow it: " + current.refused +
                 "; write launch.contain: auto, or let the node allow it (docs/operations.md, Containment)");
}

}  // namespace ds
