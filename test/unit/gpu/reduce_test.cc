// Reductions on the GPU: the CPU's order, so the CPU's bits; and the search for numbers that are not finite.
#include "kernels/reduce.h"

#include "kernels/finite.h"
#include "kernels/workspace.h"
#include "test/unit/gpu/gpu.h"

namespace ds::test {
namespace {

int64_t WorkspaceOf(const std::vector<SquareTerm>& terms) {
  int64_t bytes = 0;
  for (const SquareTerm& term : terms) bytes += SumOfSquaresWorkspaceBytes(term.x.numel());
  return bytes;
}

TEST_CASE("GPU: the sum of squares has the CPU's bits and adds to what is there") {
  for (DType dtype : {DType::f32, DType::f64})
    for (int64_t n : {0, 1, 15, 16, 17, 511, 512, 513, 2047, 2048, 2049, 65535, 65536, 65537, 2 * 65536,
                      3 * 65536 + 100, 1'000'003, 20'000'001})
      for (int64_t offset : {0, 1}) {
        if (n > 2'000'000 && (dtype == DType::f64 || offset)) continue;
        if (LeftOut(n / 4)) continue;  // what adds up blocks meets more than one from 65,537 on
        CAPTURE(NameOf(dtype), n, offset);
        Array x = Array::Random(dtype, {std::min<int64_t>(n, 100'003)}, 1, 3);
        if (n > 100'003) {  // random numbers are slow to make
          Array longer(dtype, {n});
          for (size_t i = 0; i < longer.size(); ++i)
            longer.Set(i, x[i % 100'003] * (1 + 1e-6 * static_cast<double>(i % 977)));
          x = longer;
        }
        const Array sum = Array::Of(DType::f64, {1}, {0.1});
        const GpuArray got(sum), gpu_x(x, offset);
        const std::vector<SquareTerm> gpu_terms = {{gpu_x, got}}, terms = {{x, sum}};
        const GpuContext context(WorkspaceOf(gpu_terms));
        AddSumsOfSquares(context, gpu_terms);
        AddSumsOfSquares({2}, terms);
        CHECK(got.Host() == sum);
      }
}

TEST_CASE("GPU: many sums of squares at once have the CPU's bits, terms of one sum in their order") {
  // 300 terms of f32 and 150 of f64: a launch takes 128. The first sum has 200 of them, spread over the list.
  constexpr int64_t kTerms = 450, kSums = 42;
  const std::vector<int64_t> sizes = {0, 1, 15, 16, 17, 511, 512, 513, 1024, 2049, 4095};
  const Array sums = Array::Random(DType::f64, {kSums}, 1);
  const GpuArray got(sums);
  std::vector<Array> values;
  std::vector<GpuArray> gpu_values;
  std::vector<SquareTerm> terms, gpu_terms;
  for (int64_t i = 0; i < kTerms; ++i) {
    const int64_t n = i % 50 == 7   ? 65536 + 300 * i
                      : i % 50 == 8 ? 65536
                                    : sizes[static_cast<size_t>(i) % sizes.size()];
    const DType dtype = i % 3 == 2 ? DType::f64 : DType::f32;
    values.push_back(Array::Random(dtype, {n}, static_cast<uint32_t>(i), 1 + static_cast<double>(i % 9)));
    gpu_values.emplace_back(values.back(), i % 5);
  }
  for (int64_t i = 0; i < kTerms; ++i) {
    const size_t at = static_cast<size_t>(i);
    const int64_t sum = i % 9 < 4 ? 0 : 1 + i % (kSums - 2);  // none adds to the last
    terms.push_back({values[at], sums.tensor().Flat(sum, 1)});
    gpu_terms.push_back({gpu_values[at], got.tensor().Flat(sum, 1)});
  }
  const GpuContext context(WorkspaceOf(gpu_terms));
  AddSumsOfSquares(context, gpu_terms);
  AddSumsOfSquares({2}, terms);
  CHECK(got.Host() == sums);

  const GpuContext less(WorkspaceOf(gpu_terms) - 8), none;
  CHECK_THROWS_AS(AddSumsOfSquares(less, gpu_terms), std::invalid_argument);
  AddSumsOfSquares(none, {});
}

TEST_CASE("GPU: the sum of squares propagates what is not finite, to its own sum alone") {
  for (double bad : {HUGE_VAL, static_cast<double>(NAN)})
    for (DType dtype : {DType::f32, DType::f64}) {
      const Array good = Array::Random(dtype, {70'001}, 1);  // its last block shares a warp with one of the others
      Array spoilt = Array::Of(dtype, {100'000}, Values(100'000, 1));
      spoilt.Set(77'777, bad);
      const Array want = Array::Of(DType::f64, {3}, {0, 0, 0});
      const GpuArray gpu_good(good), gpu_spoilt(spoilt), got(want);
      const auto sum = [](const Tensor& sums, int64_t i) { return sums.Flat(i, 1); };
      const std::vector<SquareTerm> gpu_terms = {
          {gpu_good, sum(got, 0)}, {gpu_spoilt, sum(got, 1)}, {gpu_good, sum(got, 2)}};
      const GpuContext context(WorkspaceOf(gpu_terms));
      AddSumsOfSquares(context, gpu_terms);
      const Array host = got.Host();
      CHECK((std::isnan(bad) ? std::isnan(host[1]) : std::isinf(host[1])));
      CHECK(host[0] == SumOfSquares({}, good));
      CHECK(host[2] == SumOfSquares({}, good));
    }
}

TEST_CASE("GPU: sums in order have the CPU's bits, few parts and many, onto the first of them too") {
  const GpuContext context;
  for (const Precision& p : kPrecisions)
    for (size_t count : {1, 2, 3, 8, 16, 17, 100})
      for (int64_t n : {0, 1, 7, 10'007})
        for (int64_t offset : {0, 1}) {
          CAPTURE(NameOf(p.dtype), count, n, offset);
          std::vector<Array> parts;
          std::vector<GpuArray> gpu_parts;
          std::vector<Tensor> tensors, gpu_tensors;
          for (size_t i = 0; i < count; ++i) {
            parts.push_back(Array::Random(p.dtype, {n}, static_cast<uint32_t>(i), 1 + static_cast<double>(i)));
            gpu_parts.emplace_back(parts.back(), offset);
          }
          for (size_t i = 0; i < count; ++i) tensors.push_back(parts[i]), gpu_tensors.push_back(gpu_parts[i]);
          Array want(p.dtype, {n});
          const GpuArray got(p.dtype, {n}, offset);
          SumInOrder({}, tensors, want);
          SumInOrder(context, gpu_tensors, got);
          CHECK(got.Host() == want);
          SumInOrder(context, gpu_tensors, gpu_parts[0]);
          CHECK(gpu_parts[0].Host() == want);
        }
}

TEST_CASE("GPU: the first number that is not finite is found wherever it is, and nothing else is") {
  const GpuContext context;
  const auto find = [&](const Array& x, int64_t offset) {
    const GpuArray first(DType::i64, {1});
    FindNonFinite(context, GpuArray(x, offset), first);
    int64_t index = 0;
    const Array host = first.Host();
    std::memcpy(&index, host.data(), sizeof index);
    return index;
  };
  for (const Precision& p : kPrecisions)
    for (int64_t n : {1, 7, 2048, 140'003})
      for (int64_t offset : {0, 1}) {
        if (LeftOut(n)) continue;
        CAPTURE(NameOf(p.dtype), n, offset);
        Values values(static_cast<size_t>(n), p.dtype == DType::bf16 ? 3e38 : 65504);
        if (n > 2) values[1] = -0.0, values[2] = 0x1p-24;
        CHECK(find(Array::Of(p.dtype, {n}, values), offset) == -1);
        values.back() = -HUGE_VAL;
        CHECK(find(Array::Of(p.dtype, {n}, values), offset) == n - 1);
        values[static_cast<size_t>(n / 2)] = NAN;
        CHECK(find(Array::Of(p.dtype, {n}, values), offset) == n / 2);
        values[0] = HUGE_VAL;
        CHECK(find(Array::Of(p.dtype, {n}, values), offset) == 0);
      }
}

}  // namespace
}  // namespace ds::test
