// Random numbers on the GPU: the CPU's bits, wherever a piece of a stream begins.
#include "kernels/random.h"
#include "kernels/dropout.h"
#include "test/unit/gpu/gpu.h"

namespace ds::test {
namespace {

const RandomStream kStream{0x123456789abcdef0u, 0xfedcba9876543210u};
const uint64_t kFirsts[] = {0, 1, 2, 3, 4, 1001, (uint64_t{1} << 34) + 4, (uint64_t{1} << 34) - 5};

TEST_CASE("GPU: dropout has the CPU's masks and bits, with a residual and without, in place") {
  const GpuContext context;
  for (const Precision& precision : kPrecisions)
    for (int64_t n : {1, 7, 4096, 10'007})
      for (uint64_t first : kFirsts)
        for (int64_t offset : {0, 1}) {
          const float p = first % 2 ? 0.1f : 0.75f;
          CAPTURE(NameOf(precision.dtype), n, first, offset, p);
          Array x = Array::Random(precision.dtype, {n}, 1);
          for (size_t i = 0; i < x.size(); i += 100) x.Set(i, i % 200 ? HUGE_VAL : NAN);  // dropped ones become 0
          const Array residual = Array::Random(precision.dtype, {n}, 2);
          Array want(precision.dtype, {n});
          const GpuArray on_gpu(x, offset), y(precision.dtype, {n}, offset), onto(residual, offset);
          Dropout({}, kStream, first, p, x, {}, want);
          Dropout(context, kStream, first, p, on_gpu, {}, y);
          CheckSame(y.Host(), want);
          Dropout({}, kStream, first, p, x, residual, want);
          Dropout(context, kStream, first, p, on_gpu, onto, onto);
          CheckSame(onto.Host(), want);
        }
}

TEST_CASE("GPU: normal numbers have the CPU's bits") {
  const GpuContext context;
  for (int64_t n : {1, 7, 4096, 100'003})
    for (uint64_t first : kFirsts)
      for (int64_t offset : {0, 1}) {
        if (LeftOut(n)) continue;
        CAPTURE(n, first, offset);
        Array want(DType::f32, {n});
        FillNormal({}, kStream, first, 0.5f, 0.02f, want);
        const GpuArray got(DType::f32, {n}, offset);
        FillNormal(context, kStream, first, 0.5f, 0.02f, got);
        CHECK(got.Host() == want);
      }
}

}  // namespace
}  // namespace ds::test
