// Activations on the GPU: the CPU's bits in fp32; in fp64, where the two have other libraries' exp and erf, and in 16
// bits, where the GPU has a sigmoid of its own, within rounding of the CPU's in fp64.
#include "kernels/activation.h"

#include <functional>

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

/// `cpu(dtype)`: what the CPU gives for the same inputs in that dtype. `scale`: of a gradient near the zero of a
/// derivative, where what is left of the terms is smaller than their rounding.
void CheckAgainstCpu(const std::string& name, const Array& got, double scale, const std::function<Array(DType)>& cpu) {
  INFO(name);
  if (got.dtype() == DType::f32) return CheckSame(got, cpu(DType::f32));
  CHECK(got.Intact());
  const Array want = cpu(DType::f64), rounded = want.To(got.dtype());  // infinite beyond the dtype's largest
  const double rounding = got.dtype() == DType::bf16 ? 0x1p-8 : got.dtype() == DType::f16 ? 0x1p-11 : 1e-13;
  const double least = got.dtype() == DType::f16 ? 0x1p-25 : 1e-34;  // sigmoids of less are not told apart
  for (size_t i = 0; i < got.size(); ++i) {
    const double bound =
        1.05 * rounding * std::fabs(want[i]) + least + scale * (got.dtype() == DType::f64 ? 1e-13 : 1e-6);
    const bool close =
        std::fabs(got[i] - want[i]) <= bound || got[i] == rounded[i] || (std::isnan(got[i]) && std::isnan(want[i]));
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
          const auto forward = [&](DType dtype) {
            Array want(dtype, {n});
            GeluForward({}, kind, x.To(dtype), want);
            return want;
          };
          const auto backward = [&](DType dtype) {
            Array want(dtype, {n});
            GeluBackward({}, kind, dy.To(dtype), x.To(dtype), want);
            return want;
          };
          const double scale = kind == GeluKind::exact ? 10 : 0;  // 1 + erf(x) cancels below 0
          const GpuArray on_gpu(x, offset), y(p.dtype, {n}, offset), dx(dy, offset);
          GeluForward(context, kind, on_gpu, y);
          CheckAgainstCpu("y", y.Host(), scale, forward);
          GeluBackward(context, kind, dx, on_gpu, dx);
          CheckAgainstCpu("dx", dx.Host(), 10, backward);
          GeluForward(context, kind, on_gpu, on_gpu);
          CheckSame(on_gpu.Host(), y.Host());
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
        const auto forward = [&](DType dtype) {
          Array y(dtype, s);
          SwigluForward({}, gate_up.To(dtype), y);
          return y;
        };
        const auto backward = [&](DType dtype) {
          Array dgate_up(dtype, wide);
          SwigluBackward({}, dy.To(dtype), gate_up.To(dtype), dgate_up);
          return dgate_up;
        };
        const GpuArray on_gpu(gate_up, offset), d(dy, offset), got(p.dtype, s, offset), gradient(p.dtype, wide, offset);
        SwigluForward(context, on_gpu, got);
        CheckAgainstCpu("y", got.Host(), 0, forward);
        SwigluBackward(context, d, on_gpu, gradient);
        CheckAgainstCpu("dgate_up", gradient.Host(), 10, backward);
        SwigluBackward(context, d, on_gpu, on_gpu);
        CheckSame(on_gpu.Host(), gradient.Host());
      }
}

}  // namespace
}  // namespace ds::test
