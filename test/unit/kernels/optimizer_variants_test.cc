// Promises: the optimizers give the same bits in every instruction set that this CPU has, wherever their arrays begin,
// however long they are and however they are written; and what they are given in 16 bits is read as the numbers it is.
// optimizer_test.cc holds each instruction set against scalar code.
#include <bit>
#include <cstdlib>
#include <limits>

#include "kernels/optimizer_kernels.h"
#include "test/unit/kernels/optimizer_inputs.h"
#include "test/unit/kernels/optimizer_updates.h"
#include "test/unit/kernels/optimizer_variants.h"

namespace ds::test {
namespace {

using detail::OptimizerArrays;
using detail::OptimizerKernels;

constexpr int64_t kLongest = 5003;
constexpr int64_t kLengths[] = {0,  1,  3,  7,  8,  9,   15,   16,   17,   31,      32,
                                33, 47, 63, 64, 65, 127, 1000, 2047, 2049, kLongest};
constexpr int64_t kOffsets[] = {0, 1, 3, 8, 31};
constexpr DType kGradients[] = {DType::f32, DType::bf16, DType::f16};

/// Inputs with infinities and one NaN an element at most beside OptimizerInput's.
Array Special(int64_t count, uint32_t seed, double scale, bool non_negative = false) {
  Array a = OptimizerInput(count, seed, scale, non_negative);
  const double special[] = {std::nan("0x1234"),
                            -std::nan("0x4321"),
                            HUGE_VAL,
                            -HUGE_VAL,
                            std::numeric_limits<float>::max(),
                            std::numeric_limits<float>::denorm_min()};
  for (int64_t i = static_cast<int64_t>(seed) * 7; i < count; i += 37)
    a.Set(static_cast<size_t>(i), special[static_cast<size_t>(i / 37) % std::size(special)]);
  return a;
}

/// What `run` throws; empty where it does not.
template <class Run>
std::string ErrorOf(const Run& run) {
  try {
    run();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}
bool Has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// What an update reads and writes: `offset` elements before the range, and guards behind it.
struct State {
  Array g, p, m, v, w;
};

State Start(int64_t offset, int64_t count, DType gradient, DType working) {
  static const Array g = Special(kLongest + 64, 1, 0.1), p = Special(kLongest + 64, 2, 1),
                     m = Special(kLongest + 64, 3, 0.1), v = Special(kLongest + 64, 4, 0.01, true);
  const auto part = [&](const Array& from) {
    Array out(DType::f32, {offset + count});
    std::memcpy(out.data(), from.data(), static_cast<size_t>(offset + count) * sizeof(float));
    return out;
  };
  return {part(g).To(gradient), part(p), part(m), part(v), Array(working, {offset + count})};
}

void Step(const OptimizerUpdate& update, State& s, int64_t offset, int64_t count, bool working, int threads = 1) {
  const auto part = [&](const Array& a) { return a.tensor().Flat(offset, count); };
  update(KernelContext{threads}, part(s.g), part(s.p), part(s.m), part(s.v), working ? part(s.w) : Tensor());
}

void CheckSameBits(const State& got, const State& want) {
  CHECK(got.g == want.g);
  CHECK(got.p == want.p);
  CHECK(got.m == want.m);
  CHECK(got.v == want.v);
  CHECK(got.w == want.w);
}

TEST_CASE("every instruction set gives the same bits for any length, begin, dtype and optimizer") {
  WithKernels with;
  for (const auto& [name, update] : OptimizerUpdates())
    for (const DType gradient : kGradients)
      for (const DType working : {DType::u8, DType::f64, DType::f32, DType::bf16, DType::f16})  // u8: none
        for (const int64_t count : kLengths)
          for (const int64_t offset : kOffsets) {
            State want = Start(offset, count, gradient, working);
            const State start = want;
            with.Use(detail::kPortableOptimizerKernels);
            Step(update, want, offset, count, working != DType::u8);
            for (const OptimizerKernels* kernels : detail::UsableOptimizerKernels()) {
              State got = start;
              with.Use(*kernels);
              Step(update, got, offset, count, working != DType::u8);
              INFO(kernels->name << ", " << name << ", gradient " << NameOf(gradient) << ", working " << NameOf(working)
                                 << ", " << count << " from " << offset);
              CheckSameBits(got, want);
            }
          }
}

TEST_CASE("what is written past the caches has the same bits") {
  const AdamScalars s = MakeAdamScalars(1e-3, 0.9, 0.95, 1e-8, 0.1, true, true, 3, 0.5);
  for (const OptimizerKernels* kernels : detail::UsableOptimizerKernels())
    for (const DType working : {DType::f32, DType::bf16, DType::f16})
      for (const int64_t count : kLengths)
        for (const int64_t offset : kOffsets)
          for (const size_t bytes : {0, 4}) {  // before the working copy
            const State start = Start(offset, count, DType::bf16, working);
            const auto step = [&](bool stream) {
              State t = start;
              std::vector<uint8_t> copy(static_cast<size_t>(t.w.tensor().bytes()) + 128, 0xff);
              kernels->adam(s,
                            OptimizerArrays{t.g.data(),
                                            DType::bf16,
                                            t.p.tensor().as<float>(),
                                            {t.m.tensor().as<float>(), t.v.tensor().as<float>()},
                                            copy.data() + bytes,
                                            working,
                                            stream},
                            offset, offset + count);
              return std::pair(t, copy);
            };
            INFO(kernels->name << ", working " << NameOf(working) << " + " << bytes << " bytes, " << count << " from "
                               << offset);
            const auto got = step(true), want = step(false);
            CheckSameBits(got.first, want.first);
            CHECK(got.second == want.second);
          }
}

TEST_CASE("arrays that exceed the caches have the same bits on any number of threads, in every instruction set") {
  constexpr int64_t kMany = (int64_t{3} << 19) + 5;  // more than the 32 MiB of most last caches
  const Array g = OptimizerInput(kMany, 1, 0.1).To(DType::bf16), p = OptimizerInput(kMany, 2, 1);
  const AdamScalars s = MakeAdamScalars(1e-3, 0.9, 0.95, 1e-8, 0.1, true, true, 3, 0.5);
  WithKernels with;
  std::vector<Array> want;
  for (const OptimizerKernels* kernels : detail::UsableOptimizerKernels())
    for (const int threads : {1, 2, 5}) {
      INFO(kernels->name << " on " << threads << " threads");
      with.Use(*kernels);
      Array p1 = p, m = p, v = OptimizerInput(kMany, 4, 0.01, true), w(DType::bf16, {kMany});
      AdamStep({threads}, s, g, p1, m, v, w);
      const std::vector<Array> got = {p1, m, v, w};
      if (want.empty()) want = got;
      CHECK(got == want);
    }
}

/// Ten steps of each optimizer's formula in fp64. Scalars are numbers that fp32 has too, where that matters.
struct Formula {
  const char* name;
  std::function<void(int64_t step, Tensor g, Tensor p, Tensor m, Tensor v, Tensor w)> kernel;
  std::function<void(int64_t step, double g, double& p, double& m, double& v)> reference;
};

std::vector<Formula> Formulas() {
  const double lr = 0.01;
  std::vector<Formula> formulas;
  formulas.push_back({"AdamW",
                      [=](int64_t t, auto g, auto p, auto m, auto v, auto w) {
                        AdamStep({2}, MakeAdamScalars(lr, 0.9, 0.95, 1e-8, 0.1, true, true, t, 0.25), g, p, m, v, w);
                      },
                      [=](int64_t t, double g, double& p, double& m, double& v) {
                        g *= 0.25, p -= lr * 0.1 * p;
                        m = 0.9 * m + 0.1 * g, v = 0.95 * v + 0.05 * g * g;
                        const double step = static_cast<double>(t);
                        p -= lr * (m / (1 - std::pow(0.9, step))) / (std::sqrt(v / (1 - std::pow(0.95, step))) + 1e-8);
                      }});
  formulas.push_back({"SGD",
                      [=](int64_t t, auto g, auto p, auto m, auto, auto w) {
                        SgdStep({2}, {0.25f, 0.01f, 0.9f, 0.75f, 0.1f, true, t == 1}, g, p, m, w);
                      },
                      [=](int64_t t, double g, double& p, double& m, double&) {
                        g = 0.25 * g + 0.1 * p;
                        m = t == 1 ? g : 0.9 * m + 0.75 * g;
                        p -= lr * (g + 0.9 * m);
                      }});
  formulas.push_back({"Lion",
                      [=](int64_t, auto g, auto p, auto m, auto, auto w) {
                        LionStep({2}, {0.25f, 0.01f, 0.9f, 0.1f, 0.99f, 0.01f, 0.999f}, g, p, m, w);
                      },
                      [=](int64_t, double g, double& p, double& m, double&) {
                        g *= 0.25;
                        const double c = 0.9 * m + 0.1 * g;
                        p = p * 0.999 - lr * (c > 0 ? 1 : c < 0 ? -1 : 0);
                        m = 0.99 * m + 0.01 * g;
                      }});
  formulas.push_back({"Adagrad",
                      [=](int64_t, auto g, auto p, auto, auto v, auto w) {
                        AdagradStep({2}, {0.25f, 0.01f, 1e-10f, 0.1f}, g, p, v, w);
                      },
                      [=](int64_t, double g, double& p, double&, double& v) {
                        g = 0.25 * g + 0.1 * p;
                        v += g * g;
                        p -= lr * g / (std::sqrt(v) + 1e-10);
                      }});
  formulas.push_back({"RMSprop",
                      [=](int64_t, auto g, auto p, auto m, auto v, auto w) {
                        RmsPropStep({2}, {0.25f, 0.01f, 0.9f, 0.1f, 1e-8f, 0.8f, 0.1f}, g, p, v, m, w);
                      },
                      [=](int64_t, double g, double& p, double& m, double& v) {
                        g = 0.25 * g + 0.1 * p;
                        v = 0.9 * v + 0.1 * g * g;
                        m = 0.8 * m + g / (std::sqrt(v) + 1e-8);
                        p -= lr * m;
                      }});
  return formulas;
}

TEST_CASE("optimizers agree with their formulas in fp64 over ten steps, with gradients in 32 and 16 bits") {
  constexpr int64_t kCount = 1001;
  WithKernels with;
  for (const OptimizerKernels* kernels : detail::UsableOptimizerKernels())
    for (const Formula& formula : Formulas())
      for (const DType dtype : kGradients) {
        CAPTURE(kernels->name, formula.name, NameOf(dtype));
        with.Use(*kernels);
        Array p = Array::Random(DType::f32, {kCount}, 1), m = Array::Of(DType::f32, {kCount}, Values(kCount, 0)), v = m;
        Array w(DType::f16, {kCount});
        Values rp = p.values(), rm(kCount, 0), rv(kCount, 0);
        for (int64_t t = 1; t <= 10; ++t) {
          const Array g = Array::Random(dtype, {kCount}, static_cast<uint32_t>(t + 10));
          formula.kernel(t, g, p, m, v, w);
          for (size_t i = 0; i < rp.size(); ++i) formula.reference(t, g[i], rp[i], rm[i], rv[i]);
        }
        CheckClose("p", p, rp, 1e-5);
        CheckClose("working", w, rp, 1e-3);
      }
}

TEST_CASE("optimizers refuse gradients that they do not read") {
  const Array p(DType::f32, {4}), wide(DType::f64, {4}), half(DType::bf16, {4}), longer(DType::f16, {5});
  for (const auto& [name, update] : OptimizerUpdates()) {
    CAPTURE(name);
    const auto error = [&](const Tensor& g, const Tensor& state) {
      return ErrorOf([&] { update({}, g, state, state, state, Tensor()); });
    };
    CHECK(Has(error(wide, p), "gradient is f64 [4] on the CPU, expected f32, bf16 or f16 [4]"));
    CHECK(Has(error(longer, p), "gradient is f16 [5]"));
    CHECK(Has(error(Tensor(nullptr, DType::bf16, {4}), p), "expected memory"));
    const auto on_gpu = [](Tensor t) {
      t.device = {DeviceKind::cuda, 0};
      return t;
    };
    CHECK(Has(error(on_gpu(half), on_gpu(p)), "on GPUs gradients are f32"));
  }
}

TEST_CASE("instruction sets are chosen by name, and the fastest without one") {
  const auto usable = detail::UsableOptimizerKernels();
  REQUIRE(usable.size() >= 1);
  CHECK(std::string(usable[0]->name) == "portable");
  for (const OptimizerKernels* kernels : usable) CHECK(&detail::FindOptimizerKernels(kernels->name) == kernels);
  CHECK(&detail::FindOptimizerKernels(nullptr) == usable.back());
  CHECK(&detail::FindOptimizerKernels("") == usable.back());
  const std::string error = ErrorOf([] { detail::FindOptimizerKernels("sse9"); });
  CHECK(Has(error, "DS_OPTIMIZER_KERNELS is 'sse9'"));
  for (const OptimizerKernels* kernels : usable) CHECK(Has(error, kernels->name));
}

TEST_CASE("DS_OPTIMIZER_KERNELS forces the instruction set of a process") {
  const std::string self = std::string(DS_BIN_DIR) + "/test-unit-kernels";
  const auto run = [&](const std::string& name) {
    return std::system(("DS_OPTIMIZER_KERNELS=" + name + " " + self + " '[.chosen-kernels]' > /dev/null 2>&1").c_str());
  };
  for (const OptimizerKernels* kernels : detail::UsableOptimizerKernels()) CHECK(run(kernels->name) == 0);
  CHECK(run("sse9") != 0);
}

TEST_CASE("the kernels that the environment names", "[.chosen-kernels]") {  // run by the case before
  const char* const wanted = std::getenv("DS_OPTIMIZER_KERNELS");
  REQUIRE(wanted);
  CHECK(std::string(detail::ChosenOptimizerKernels().name) == wanted);
}

}  // namespace
}  // namespace ds::test
