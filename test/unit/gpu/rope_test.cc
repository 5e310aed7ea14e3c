// Rotary position embedding on the GPU: the CPU's bits, and the formula.
#include "kernels/rope.h"

#include "test/unit/gpu/gpu.h"
#include "test/unit/kernels/reference.h"

namespace ds::test {
namespace {

TEST_CASE("GPU: RoPE turns and turns back as the CPU does, and leaves the values alone") {
  const GpuContext context;
  for (const Precision& p : kPrecisions)
    for (DType table : {DType::f32, DType::f64})
      for (const Shape& s : {Shape{1, 1, 1, 2}, Shape{2, 3, 4, 6}, Shape{2, 65, 12, 64}, Shape{1, 33, 6, 128},
                             Shape{3, 5, 7, 80}, Shape{0, 4, 2, 8}})
        for (int64_t offset : {0, 1}) {
          if (LeftOut(s.numel())) continue;
          CAPTURE(NameOf(p.dtype), NameOf(table), s.str(), offset);
          const int64_t heads = std::max<int64_t>(1, s[2] - 2);
          const Array x = Array::Random(p.dtype, s, 1);
          Array cos(table, {s[1] + 2, s[3] / 2}), sin(table, cos.shape());
          RopeTable(1e4, cos, sin);
          const GpuArray got(x, offset), c(cos, offset), g(sin, offset);
          Array want = x;
          Rope({}, want, heads, cos, sin, false);
          Rope(context, got, heads, c, g, false);
          CHECK(got.Host() == want);
          if (s[0] > 0 && p.dtype != DType::f64)
            CheckClose("turned", got.Host(),
                       reference::Rope(static_cast<size_t>(s[1]), static_cast<size_t>(s[2]), static_cast<size_t>(s[3]),
                                       static_cast<size_t>(heads), 1e4, 1, x.values()),
                       p.tolerance);
          Rope({}, want, heads, cos, sin, true);
          Rope(context, got, heads, c, g, true);
          CHECK(got.Host() == want);
        }
}

}  // namespace
}  // namespace ds::test
