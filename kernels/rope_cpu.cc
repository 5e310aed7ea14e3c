#include "kernels/rope.h"

#include <cmath>
#include <vector>

#include "kernels/convert.h"
#include "kernels/dispatch.h"
#include "kernels/parallel.h"

namespace ds {
namespace {

using detail::Acc;

/// Turns the heads of one token: (a, b) -> (a cos - b sin, b cos + a sin), a the first half of a head, b the second.
template <class T>
void TurnToken(T* token, int64_t heads, int64_t half, const Acc<T>* cos, const Acc<T>* sin, Acc<T>* buffer) {
  using A = Acc<T>;
  for (int64_t h = 0; h < heads; ++h) {
    T* head = token + h * 2 * half;
    const A* a = detail::Load(head, buffer, half);
    const A* b = detail::Load(head + half, buffer + half, half);
    A* a_out = detail::StoreTarget(head, buffer);
    A* b_out = detail::StoreTarget(head + half, buffer + half);
#pragma omp simd
    for (int64_t i = 0; i < half; ++i) {
      const A first = a[i] * cos[i] - b[i] * sin[i];
      const A second = b[i] * cos[i] + a[i] * sin[i];
      a_out[i] = first;
      b_out[i] = second;
    }
    detail::Store(a_out, head, half);
    detail::Store(b_out, head + half, half);
  }
}

template <class T, class Table>
void Turn(const KernelContext& context, const Tensor& x, int64_t heads, const Table* cos, const Table* sin,
          bool inverse) {
  using A = Acc<T>;
  const int64_t tokens = x.shape[1], width = x.shape[2] * x.shape[3], half = x.shape[3] / 2;
  T* data = x.as<T>();
  detail::ParallelBlocks(context, x.shape[0] * tokens, detail::kRowsPerBlock, [&](int64_t begin, int64_t end) {
    std::vector<A> buffers(static_cast<size_t>(4 * half));
    A *c = buffers.data(), *s = c + half;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t position = i % tokens;
      detail::Convert(cos + position * half, c, half);
      detail::Convert(sin + position * half, s, half);
      if (inverse)
        for (int64_t j = 0; j < half; ++j) s[j] = -s[j];
      TurnToken(data + i * width, heads, half, c, s, s + half);
    }
  });
}

}  // namespace

void RopeTable(double theta, Tensor cos, Tensor sin) {
  const char* kernel = "RopeTable";
  detail::CheckMemory(kernel, "cos", cos);
  detail::Check(cos.shape.rank() == 2 && (cos.dtype == DType::f32 || cos.dtype == DType::f64), kernel,
                detail::Describe("cos", cos) + ", expected f32 or f64 [positions, head_size / 2]");
  const int64_t positions = cos.shape[0], half = cos.shape[1];
  detail::CheckMatrix(kernel, "sin", sin, cos.dtype, positions, half);
  detail::RequireCpu(kernel, cos, sin);
  const auto fill = [&](auto type) {
    using A = decltype(type);
    for (int64_t i = 0; i < half; ++i) {
      const double frequency = std::pow(theta, -static_cast<double>(i) / static_cast<double>(half));
      for (int64_t position = 0; position < positions; ++position) {
        const double angle = static_cast<double>(position) * frequency;
        cos.as<A>()[position * half + i] = static_cast<A>(std::cos(angle));
        sin.as<A>()[position * half + i] = static_cast<A>(std::sin(angle));
      }
    }
  };
  if (cos.dtype == DType::f64)
    fill(double{});
  else
    fill(float{});
}

void Rope(const KernelContext& context, Tensor x, int64_t heads, Tensor cos, Tensor sin, bool inverse) {
  const char* kernel = "Rope";
  detail::CheckFloating(kernel, "x", x);
  detail::Check(x.shape.rank() == 4 && x.shape[3] % 2 == 0 && heads >= 0 && heads <= x.shape[2], kernel,
                detail::Describe("x", x) + ", expected [batch, tokens, at least " + std::to_string(heads) +
                    " heads, even head size]");
  detail::CheckMemory(kernel, "cos", cos);
  detail::Check((cos.dtype == DType::f32 || cos.dtype == DType::f64) && detail::Columns(cos) == x.shape[3] / 2 &&
                    detail::Rows(cos) >= x.shape[1],
                kernel, detail::Describe("cos", cos) + " for " + detail::Describe("x", x));
  detail::CheckMatrix(kernel, "sin", sin, cos.dtype, detail::Rows(cos), detail::Columns(cos));
  if (detail::RanOnCuda(kernel, cuda::Rope, context, x, heads, cos, sin, inverse)) return;
  detail::DispatchFloating(x.dtype, kernel, [&](auto type) {
    using T = decltype(type);
    if (cos.dtype == DType::f64)
      Turn<T>(context, x, heads, cos.as<double>(), sin.as<double>(), inverse);
    else
      Turn<T>(context, x, heads, cos.as<float>(), sin.as<float>(), inverse);
  });
}

}  // namespace ds
