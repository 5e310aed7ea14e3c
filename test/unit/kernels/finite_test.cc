// Promise: infinities and NaN are found wherever they are, the first of them is told, and no finite number is taken for
// one.
#include "kernels/finite.h"

#include <limits>

#include "test/unit/kernels/reference.h"
#include "test/unit/kernels/support.h"

namespace ds::test {
namespace {

TEST_CASE("the first number that is not finite is found wherever it is, and nothing else is") {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  for (const Precision& p : kPrecisions)
    for (int64_t n : {int64_t{1}, int64_t{65536}, int64_t{140003}})
      for (int threads : {1, 4}) {
        CAPTURE(NameOf(p.dtype), n, threads);
        const KernelContext context{threads};
        // The largest finite number of f16 is one of every dtype here; zeros, signs and subnormals are finite too.
        std::vector<double> values(static_cast<size_t>(n), -65504.0 * (p.dtype == DType::bf16 ? 0.5 : 1));
        if (n > 2) values[1] = -0.0, values[2] = 0x1p-24;
        CHECK(FirstNonFinite(context, Array::Of(p.dtype, {n}, values)) == -1);
        values.back() = -inf;
        CHECK(FirstNonFinite(context, Array::Of(p.dtype, {n}, values)) == n - 1);
        values[static_cast<size_t>(n / 2)] = nan;
        CHECK(FirstNonFinite(context, Array::Of(p.dtype, {n}, values)) == n / 2);
        values[0] = inf;
        const Array x = Array::Of(p.dtype, {n}, values);
        CHECK(FirstNonFinite(context, x) == 0);
        int64_t first = 5;
        FindNonFinite(context, x, Tensor::Of(&first, Shape{1}));
        CHECK(first == 0);
      }
}

TEST_CASE("only floating point can be looked at") {
  int32_t x = 0;
  CHECK_THROWS_AS(FirstNonFinite({}, Tensor::Of(&x, Shape{1})), std::invalid_argument);
}

}  // namespace
}  // namespace ds::test
