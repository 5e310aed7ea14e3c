// Facts of steps that end in every way, for the tests of the CPU's decision and of the GPU's.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "kernels/step_decision.h"
#include "test/unit/kernels/support.h"

namespace ds::test {

struct DecisionCase {
  std::string name;
  StepRule rule;
  Values facts;  ///< [ranks, units + kStepFacts]
  bool steps;    ///< as the documentation says
};

/// `ranks` ranks whose units have random sums of squares, and losses that no two orders add up alike.
inline DecisionCase FiniteFacts(int64_t ranks, int64_t units, double loss_scale, double max_norm) {
  DecisionCase c{std::to_string(ranks) + " ranks, " + std::to_string(units) + " units, scale " +
                     std::to_string(loss_scale) + ", norm " + std::to_string(max_norm),
                 {ranks, units, loss_scale, max_norm, true},
                 {},
                 true};
  std::mt19937 generator(static_cast<uint32_t>(ranks * 100 + units));
  std::uniform_real_distribution<double> number(0.1, 3);
  for (int64_t rank = 0; rank < ranks; ++rank) {
    for (int64_t unit = 0; unit < units; ++unit) c.facts.push_back(number(generator) * loss_scale * loss_scale);
    for (double fact : {number(generator), 0.0, -1.0}) c.facts.push_back(fact);
  }
  return c;
}

inline std::vector<DecisionCase> DecisionCases() {
  std::vector<DecisionCase> cases;
  for (int64_t ranks : {1, 2, 8})
    for (int64_t units : {1, 7, 300})
      for (double loss_scale : {1.0, 65536.0})
        for (double max_norm : {0.0, 1.0, 1e9}) cases.push_back(FiniteFacts(ranks, units, loss_scale, max_norm));
  const auto add = [&](const std::string& name, const auto& change) {
    DecisionCase c = FiniteFacts(2, 3, 8, 1);
    c.name = name;
    c.steps = false;
    change(c);
    cases.push_back(c);
  };
  add("may not step", [](DecisionCase& c) { c.rule.may_step = false; });
  add("a loss is NaN", [](DecisionCase& c) { c.facts[3] = NAN; });
  add("a loss is infinite on the last rank", [](DecisionCase& c) { c.facts[9] = HUGE_VAL; });
  add("squares are infinite", [](DecisionCase& c) { c.facts[7] = HUGE_VAL; });
  add("squares are NaN", [](DecisionCase& c) { c.facts[2] = NAN; });
  add("squares overflow only in their sum", [](DecisionCase& c) { c.facts[0] = c.facts[6] = 1.7e308; });
  add("all gradients are zero", [](DecisionCase& c) {
    for (size_t i : {0, 1, 2, 6, 7, 8}) c.facts[i] = 0;
    c.steps = true;
  });
  return cases;
}

}  // namespace ds::test
