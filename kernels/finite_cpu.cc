#include "kernels/finite.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/dispatch.h"
#include "kernels/parallel.h"

namespace ds {
namespace {

constexpr int64_t kBlock = 65536;

/// Infinities and NaN are the values whose exponent bits are all ones. Read as integers, a block is looked at without
/// a branch; only one that has such a value is searched.
template <class Bits>
int64_t FirstWithExponent(const KernelContext& context, const Tensor& x, Bits exponent) {
  const char* data = static_cast<const char*>(x.data);
  const int64_t n = x.numel();
  auto hit = [data, exponent](int64_t i) {
    Bits bits;
    std::memcpy(&bits, data + i * static_cast<int64_t>(sizeof bits), sizeof bits);
    return static_cast<Bits>(bits & exponent) == exponent;
  };
  std::vector<int64_t> first(static_cast<size_t>((n + kBlock - 1) / kBlock), -1);
  detail::ParallelBlocks(context, n, kBlock, [&](int64_t begin, int64_t end) {
    Bits any = 0;
    for (int64_t i = begin; i < end; ++i) any = static_cast<Bits>(any | static_cast<Bits>(hit(i)));
    if (!any) return;
    int64_t i = begin;
    while (!hit(i)) ++i;
    first[static_cast<size_t>(begin / kBlock)] = i;
  });
  const auto found = std::find_if(first.begin(), first.end(), [](int64_t i) { return i >= 0; });
  return found == first.end() ? -1 : *found;
}

}  // namespace

int64_t FirstNonFinite(const KernelContext& context, Tensor x) {
  detail::CheckMemory("FirstNonFinite", "x", x);
  detail::RequireCpu("FirstNonFinite", x);
  switch (x.dtype) {
    case DType::f64:
      return FirstWithExponent<uint64_t>(context, x, 0x7FF0'0000'0000'0000);
    case DType::f32:
      return FirstWithExponent<uint32_t>(context, x, 0x7F80'0000);
    case DType::bf16:
      return FirstWithExponent<uint16_t>(context, x, 0x7F80);
    case DType::f16:
      return FirstWithExponent<uint16_t>(context, x, 0x7C00);
    default:
      detail::Check(false, "FirstNonFinite", detail::Describe("x", x) + ", expected floating point");
      return -1;
  }
}

void FindNonFinite(const KernelContext& context, Tensor x, Tensor first) {
  detail::CheckFloating("FindNonFinite", "x", x);
  detail::CheckVector("FindNonFinite", "first", first, DType::i64, 1);
  if (detail::RanOnCuda("FindNonFinite", cuda::FindNonFinite, context, x, first)) return;
  *first.as<int64_t>() = FirstNonFinite(context, x);
}

}  // namespace ds
