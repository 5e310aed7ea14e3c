// Every optimizer's update, with the choices that change its arithmetic, as tests of whole families call them.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/optimizer.h"

namespace ds::test {

/// Gradient, master, m, v, working copy. An update without one of the states does not touch it.
using OptimizerUpdate = std::function<void(const KernelContext&, Tensor g, Tensor p, Tensor m, Tensor v, Tensor w)>;

inline std::vector<std::pair<std::string, OptimizerUpdate>> OptimizerUpdates() {
  std::vector<std::pair<std::string, OptimizerUpdate>> updates;
  for (bool decoupled : {false, true})
    updates.emplace_back(decoupled ? "AdamW" : "Adam", [=](auto& context, auto g, auto p, auto m, auto v, auto w) {
      AdamStep(context, MakeAdamScalars(1e-3, 0.9, 0.95, 1e-8, 0.1, decoupled, true, 3, 0.5), g, p, m, v, w);
    });
  for (float momentum : {0.0f, 0.9f})
    for (bool nesterov : {false, true})
      for (bool first : {false, true})
        updates.emplace_back(
            "SGD " + std::to_string(momentum) + (nesterov ? " nesterov" : "") + (first ? " first" : ""),
            [=](auto& context, auto g, auto p, auto m, auto, auto w) {
              SgdStep(context, {0.5f, 0.1f, momentum, 0.8f, 0.01f, nesterov, first}, g, p, m, w);
            });
  updates.emplace_back("Lion", [](auto& context, auto g, auto p, auto m, auto, auto w) {
    LionStep(context, {0.5f, 0.1f, 0.9f, 0.1f, 0.99f, 0.01f, 0.999f}, g, p, m, w);
  });
  updates.emplace_back("Adagrad", [](auto& context, auto g, auto p, auto, auto v, auto w) {
    AdagradStep(context, {0.5f, 0.1f, 1e-10f, 0.1f}, g, p, v, w);
  });
  for (float momentum : {0.0f, 0.9f})
    updates.emplace_back("RMSprop " + std::to_string(momentum),
                         [=](auto& context, auto g, auto p, auto m, auto v, auto w) {
                           RmsPropStep(context, {0.5f, 0.1f, 0.99f, 0.01f, 1e-8f, momentum, 0.1f}, g, p, v, m, w);
                         });
  return updates;
}

}  // namespace ds::test
