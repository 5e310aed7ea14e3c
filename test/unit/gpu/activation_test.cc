// Activations on the GPU: the CPU's bits, but in fp64, where the two have other libraries' exp and erf.
#include "kernels/activation.h"

#include "test/unit/gpu/gpu.h"

namespace ds::test {
namespace {

/// Ordinary numbers, and those at the ends of what exp and erf are bounded to.
Array Inputs(DType dtype, Shape shape, uint32_t seed) {
  Array x = Array::Random(dtype, shape, seed, 3);
  const double special[] = {0.0, -0.0, 4,    -4,  9,    -9,   20,       -20,       88,
                            -88, 104,  -110, 3e4, -3e4, 1e-7, HUGE_VAL, -HUGE_VAL, NAN};
  for (size_t i = 0; i < x.size(); i += 5) x.Set(i, special[i / 5 % std::size(special)]);
  return x;
}

void CheckAgainstCpu(const std::string& name, const Array& got, const Array& want) {
  INFO(name);
  if (got.dtype() != DType::f64) return CheckSame(got, want);
  CHECK(got.Intact());
  for (size_t i = 0; i < got.size(); ++i) {
    const double bound = 1e-13 * (1 + std::fabs(want[i]));
    const bool close =
        std::fabs(got[i] - want[i]) <= bound || got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i]));
    if (!close) {
      INFO("element " << i << ": got " << got[i] << ", want " << want[i]);
      CHECK(close);
    }
  }
}

TEST_CASE("GPU: GELU and its gradient are the CPU's, in place too") {
  const GpuContext context;
  for (const Precision& p : kPrecisions)
    for (int64_t n : {1, 7, 768, 100'003})
      for (int64_t offset : {0, 1})
        for (GeluKind kind : {GeluKind::exact, GeluKind::tanh}) {
          if (LeftOut(n)) continue;
          CAPTURE(NameOf(p.dtype), n, offset, static_cast<int>(kind));
          const Array x = Inputs(p.dtype, {n}, 1), dy = Array::Random(p.dtype, {n}, 2);
          Array want(p.dtype, {n});
          const GpuArray on_gpu(x, offset), y(p.dtype, {n}, offset), dx(dy, offset);
          GeluForward({}, kind, x, want);
          GeluForward(context, kind, on_gpu, y);
          CheckAgainstCpu("y", y.Host(), want);
          GeluBackward({}, kind, dy, x, want);
          GeluBackward(context, kind, dx, on_gpu, dx);
          CheckAgainstCpu("dx", dx.Host(), want);
          GeluForward({}, kind, x, want);
          GeluForward(context, kind, on_gpu, on_gpu);
          CheckAgainstCpu("y in place", on_gpu.Host(), want);
        }
}

TEST_CASE("GPU: SwiGLU and its gradient are the CPU's, in place too") {
  const GpuContext context;
  for (const Precision& p : kPrecisions)
    for (const Shape& s : {Shape{1, 1}, Shape{3, 7}, Shape{5, 1000}, Shape{70, 344}, Shape{3, 11008}, Shape{0, 8}})
      for (int64_t offset : {0, 1}) {
        if (LeftOut(s.numel())) continue;
        CAPTURE(NameOf(p.dtype), s.str(), offset);
        const Shape wide{s[0], 2 * s[1]};
        const Array gate_up = Inputs(p.dtype, wide, 1), dy = Array::Random(p.dtype, s, 2);
        Array y(p.dtype, s), dgate_up(p.dtype, wide);
        const GpuArray on_gpu(gate_up, offset), d(dy, offset), got(p.dtype, s, offset), gradient(p.dtype, wide, offset);
        SwigluForward({}, gate_up, y);
        SwigluForward(context, on_gpu, got);
        CheckAgainstCpu("y", got.Host(), y);
        SwigluBackward({}, dy, gate_up, dgate_up);
        SwigluBackward(context, d, on_gpu, gradient);
        CheckAgainstCpu("dgate_up", gradient.Host(), dgate_up);
        SwigluBackward(context, d, on_gpu, on_gpu);
        CheckAgainstCpu("dgate_up in place", on_gpu.Host(), dgate_up);
      }
}

}  // namespace
}  // namespace ds::test
