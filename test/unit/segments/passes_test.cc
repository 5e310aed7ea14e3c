// What the passes promise besides right values: Recompute's bits, accumulation, no dependence on threads, on what was
// in memory before, or on how the global batch is cut.
#include <algorithm>
#include <cmath>
#include <set>
#include <stdexcept>

#include "test/catch.h"
#include "test/unit/segments/harness.h"

namespace ds::test {
namespace {

constexpr SegmentKind kKinds[] = {SegmentKind::embedding, SegmentKind::attention, SegmentKind::mlp, SegmentKind::head};
constexpr DType kComputes[] = {DType::f64, DType::f32, DType::bf16, DType::f16};

bool HasNan(const Buffer& b) {
  std::vector<double> values = b.Values();
  return std::any_of(values.begin(), values.end(), [](double v) { return std::isnan(v); });
}

std::vector<std::vector<unsigned char>> OutputBytes(const Harness& h) {
  std::vector<std::vector<unsigned char>> bytes;
  for (const auto& [name, buffer] : h.Outputs()) bytes.push_back(buffer->Bytes());
  return bytes;
}

/// Of every model, kind and dtype; MLPs with and without a saved activation.
template <class Body>
void ForEverySegment(double dropout, const Body& body) {
  for (const std::string& name : SmallModelNames())
    for (SegmentKind kind : kKinds)
      for (DType compute : kComputes)
        for (RecomputeMode recompute : {RecomputeMode::none, RecomputeMode::full}) {
          if (recompute == RecomputeMode::full && kind != SegmentKind::mlp) continue;  // they save the same
          CAPTURE(name, static_cast<int>(kind), NameOf(compute), static_cast<int>(recompute));
          Harness h(SmallModel(name, dropout), kind, compute, {3, 6}, false, recompute);
          body(h);
        }
}

Buffer& SavedOf(Harness& h, const std::string& name) {
  for (size_t i = 0; i < h.saved.size(); ++i)
    if (h.spec.saved[i].name == name) return h.saved[i];
  throw std::logic_error("no saved tensor " + name);
}

}  // namespace

TEST_CASE("every output is written whole, and nothing beside it", "[passes]") {
  ForEverySegment(0.2, [](Harness& h) {
    h.All();
    for (const auto& [name, buffer] : h.Outputs()) {
      CAPTURE(name);
      CHECK_FALSE(HasNan(*buffer));
    }
    CHECK(h.GuardsIntact());
    if (h.spec.kind == SegmentKind::head) CHECK(std::isfinite(h.loss_sum));
  });
}

TEST_CASE("Recompute writes Forward's saved tensors to the bit", "[passes]") {
  ForEverySegment(0.2, [](Harness& h) {
    h.Forward();
    auto forward = OutputBytes(h);
    double loss = h.loss_sum;
    std::vector<unsigned char> y = h.y.Bytes();
    for (Buffer& s : h.saved) s.Poison();
    h.Recompute();
    CHECK(OutputBytes(h) == forward);
    CHECK(h.y.Bytes() == y);
    if (h.spec.kind == SegmentKind::head) CHECK(h.loss_sum == loss);
  });
}

TEST_CASE("SwiGLU computed again in the backward gives the bits of the one that was kept", "[passes]") {
  for (const char* name : {"llama", "llama-mqa", "qkv-bias-only"})
    for (DType compute : kComputes) {
      CAPTURE(name, NameOf(compute));
      Harness kept(SmallModel(name, 0.2), SegmentKind::mlp, compute, {3, 6});
      REQUIRE(kept.spec.saved.back().name == "activated");
      kept.All();
      for (RecomputeMode mode : {RecomputeMode::activation, RecomputeMode::attention, RecomputeMode::full}) {
        Harness again(SmallModel(name, 0.2), SegmentKind::mlp, compute, {3, 6}, false, mode);
        REQUIRE(again.spec.saved.back().name == "pre");
        again.All();
        size_t outputs = 0;
        for (const auto& [output, buffer] : kept.Outputs()) {
          if (output == "saved activated") continue;
          CAPTURE(output);
          CHECK(again.Outputs().at(outputs).first == output);
          CHECK(again.Outputs().at(outputs++).second->Bytes() == buffer->Bytes());
        }
        CHECK(outputs == again.Outputs().size());
      }
    }
}

TEST_CASE("BackwardWeight reads an activation that is saved, and never computes it from pre", "[passes]") {
  for (const std::string& name : SmallModelNames())
    for (RecomputeMode mode : {RecomputeMode::none, RecomputeMode::activation, RecomputeMode::full}) {
      CAPTURE(name, static_cast<int>(mode));
      Harness h(SmallModel(name, 0.2), SegmentKind::mlp, DType::bf16, {3, 6}, false, mode);
      const bool swiglu = h.model.activation == Activation::swiglu, saved = h.spec.saved.back().name == "activated";
      REQUIRE(saved == (!swiglu || mode == RecomputeMode::none));
      CHECK(h.spec.backward_weight_scratch == (saved ? 0 : LayOut({{"activated", DType::bf16, {18, h.model.ffn}}})));
      h.All();
      for (Buffer& g : h.grads) g.Poison();
      SavedOf(h, "pre").Poison();
      h.BackwardWeight();
      const auto of = [&](const std::string& param) -> const Buffer& {
        for (size_t p = 0; p < h.grads.size(); ++p)
          if (h.param_names[p].ends_with(param)) return h.grads[p];
        throw std::logic_error("no parameter " + param);
      };
      CHECK(HasNan(of("down.weight")) == !saved);
      CHECK_FALSE(HasNan(of("up.weight")));
      if (!saved) continue;
      SavedOf(h, "activated").Poison();
      h.BackwardWeight();
      CHECK(HasNan(of("down.weight")));
    }
}

TEST_CASE("any number of threads gives the same bits", "[passes]") {
  for (const char* name : {"gpt2", "llama"}) {
    for (SegmentKind kind : kKinds) {
      for (DType compute : kComputes) {
        CAPTURE(name, static_cast<int>(kind), NameOf(compute));
        ModelConfig model = SmallModel(name, 0.1);
        model.hidden = 64, model.ffn = 136, model.vocabulary = 130, model.max_positions = 70;  // more than one tile
        Harness one(model, kind, compute, {4, 70});
        one.step.kernel.threads = 1;
        one.All();
        for (int threads : {2, 3, 5}) {
          Harness many(model, kind, compute, {4, 70});
          many.step.kernel.threads = threads;
          many.All();
          CHECK(OutputBytes(many) == OutputBytes(one));
          if (kind == SegmentKind::head) CHECK(many.loss_sum == one.loss_sum);
        }
      }
    }
  }
}

TEST_CASE("BackwardWeight adds to gradients when told to", "[passes]") {
  ForEverySegment(0.2, [](Harness& h) {
    h.All();
    std::vector<std::vector<double>> once;
    for (Buffer& g : h.grads) {
      once.push_back(g.Values());
      for (int64_t i = 0; i < g.tensor().numel(); ++i) g.Set(i, 0.5 + Noise(9, i));
    }
    h.BackwardWeight(/*accumulate=*/true);
    double bound = h.options.compute == DType::f64 ? 1e-14 : 1e-6;
    for (size_t p = 0; p < once.size(); ++p) {
      double error = 0;
      for (size_t i = 0; i < once[p].size(); ++i) {
        Buffer before(h.grads[p].tensor().dtype, Shape{1});
        before.Set(0, 0.5 + Noise(9, static_cast<int64_t>(i)));
        double expected = before.Get(0) + once[p][i];
        error =
            std::max(error, std::abs(h.grads[p].Get(static_cast<int64_t>(i)) - expected) / (1 + std::abs(expected)));
      }
      CAPTURE(h.param_names[p]);
      CHECK(error < bound);
    }
  });
}

TEST_CASE("a batch cut in two gives the same outputs: dropout masks know only the global index", "[passes]") {
  for (const char* name : {"gpt2", "llama"}) {
    for (SegmentKind kind : {SegmentKind::embedding, SegmentKind::attention, SegmentKind::mlp}) {
      CAPTURE(name, static_cast<int>(kind));
      const int64_t tokens = 6;
      Harness whole(SmallModel(name, 0.3), kind, DType::f64, {4, tokens});
      whole.All();
      const int64_t half = whole.y.tensor().numel() / 2;
      for (int64_t part : {0, 1}) {
        Harness cut(SmallModel(name, 0.3), kind, DType::f64, {2, tokens});
        cut.step.first_sample = whole.step.first_sample + 2 * part;
        for (int64_t i = 0; i < half; ++i) {
          cut.x.Set(i, whole.x.Get(part * half + i));
          cut.dy.Set(i, whole.dy.Get(part * half + i));
        }
        for (int64_t i = 0; i < 2 * tokens; ++i) cut.tokens.Set(i, whole.tokens.Get(part * 2 * tokens + i));
        cut.All();
        double error = 0;
        for (int64_t i = 0; i < half; ++i) {
          error = std::max(error, std::abs(cut.y.Get(i) - whole.y.Get(part * half + i)));
          if (kind != SegmentKind::embedding)
            error = std::max(error, std::abs(cut.dx.Get(i) - whole.dx.Get(part * half + i)));
        }
        CHECK(error < 1e-12);
      }
    }
  }
}

TEST_CASE("dropout masks differ between steps, seeds, samples, layers and places", "[passes]") {
  std::set<std::vector<unsigned char>> outputs;
  int runs = 0;
  auto run = [&](auto change) {
    Harness h(SmallModel("llama", 0.5), SegmentKind::mlp);
    change(h);
    h.Forward();
    outputs.insert(h.y.Bytes());
    ++runs;
  };
  run([](Harness&) {});
  run([](Harness& h) { h.step.step += 1; });
  run([](Harness& h) { h.step.seed += 1; });
  run([](Harness& h) { h.step.first_sample += 1; });
  run([](Harness& h) {
    h.spec.layer = 0;
    h.segment = MakeSegment(h.spec, h.options);
  });
  CHECK(outputs.size() == static_cast<size_t>(runs));

  // Places: the zeros of two residual branches of one layer, where x is zero.
  std::vector<std::vector<bool>> masks;
  for (SegmentKind kind : {SegmentKind::attention, SegmentKind::mlp}) {
    Harness h(SmallModel("gpt2", 0.5), kind);
    h.BackwardInput();  // of poisoned tensors: only dropped_dy, which depends on dy alone, is looked at
    std::vector<bool>& mask = masks.emplace_back();
    for (double v : h.carried.back().Values()) mask.push_back(v == 0);
    auto dropped = std::count(mask.begin(), mask.end(), true);
    CHECK(dropped > static_cast<int64_t>(mask.size()) / 4);
    CHECK(dropped < static_cast<int64_t>(mask.size()) * 3 / 4);
  }
  CHECK(masks[0] != masks[1]);
}

TEST_CASE("without training there is no dropout and the head writes no dlogits", "[passes]") {
  for (SegmentKind kind : kKinds) {
    CAPTURE(static_cast<int>(kind));
    Harness evaluated(SmallModel("gpt2", 0.4), kind), plain(SmallModel("gpt2", 0), kind);
    evaluated.step.training = false, evaluated.step.global_tokens = 0;
    evaluated.Forward();
    plain.Forward();
    if (kind != SegmentKind::head) {
      CHECK(evaluated.y.Bytes() == plain.y.Bytes());
      continue;
    }
    CHECK(evaluated.loss_sum == plain.loss_sum);
    REQUIRE(evaluated.spec.saved.back().name == "dlogits");
    std::vector<unsigned char> dlogits = evaluated.saved.back().Bytes();
    CHECK(std::all_of(dlogits.begin(), dlogits.end(), [](unsigned char c) { return c == 0xFF; }));
  }
}

}  // namespace ds::test
