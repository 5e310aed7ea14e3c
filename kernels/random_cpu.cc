#include "kernels/random.h"

#include <algorithm>
#include <cmath>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "kernels/check.h"
#include "kernels/dispatch.h"
#include "kernels/parallel.h"
#include "kernels/philox.h"

namespace ds {
namespace {

using detail::High, detail::kRounds, detail::Low;
using detail::kMultiplier0, detail::kMultiplier1, detail::kWeyl0, detail::kWeyl1;

constexpr int kNumbers = 256;  ///< numbers that are computed at a time

#if defined(__AVX2__)
/// Words of the four blocks with counters first_block .. first_block + 3, in order. A 64-bit lane holds one word of one
/// block in its lower half; what the upper halves hold does not matter, the multiplication does not see it.
void FourBlocks(RandomStream stream, uint64_t first_block, uint32_t* out) {
  const auto all = [](uint64_t x) { return _mm256_set1_epi64x(static_cast<int64_t>(x)); };
  const __m256i counter = _mm256_add_epi64(all(first_block), _mm256_set_epi64x(3, 2, 1, 0));
  __m256i c0 = counter, c1 = _mm256_srli_epi64(counter, 32), c2 = all(Low(stream.site)), c3 = all(High(stream.site));
  uint32_t key0 = Low(stream.seed), key1 = High(stream.seed);
  for (int round = 0; round < kRounds; ++round) {
    const __m256i product0 = _mm256_mul_epu32(all(kMultiplier0), c0),
                  product1 = _mm256_mul_epu32(all(kMultiplier1), c2);
    c0 = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(product1, 32), c1), all(key0));
    c2 = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(product0, 32), c3), all(key1));
    c1 = product1;
    c3 = product0;
    key0 += kWeyl0, key1 += kWeyl1;
  }
  const __m256i words01 = _mm256_blend_epi32(c0, _mm256_slli_epi64(c1, 32), 0xaa);
  const __m256i words23 = _mm256_blend_epi32(c2, _mm256_slli_epi64(c3, 32), 0xaa);
  const __m256i blocks02 = _mm256_unpacklo_epi64(words01, words23), blocks13 = _mm256_unpackhi_epi64(words01, words23);
  auto* to = reinterpret_cast<__m256i*>(out);
  _mm256_storeu_si256(to, _mm256_permute2x128_si256(blocks02, blocks13, 0x20));
  _mm256_storeu_si256(to + 1, _mm256_permute2x128_si256(blocks02, blocks13, 0x31));
}
#else
void FourBlocks(RandomStream stream, uint64_t first_block, uint32_t* out) {
  for (uint64_t block = first_block; block < first_block + 4; ++block, out += 4)
    std::copy_n(detail::PhiloxBlock(stream, block).v, 4, out);
}
#endif

/// use(numbers, skip, at, n): consecutive pieces of the stream that together are its numbers [first, first + count); a
/// piece is numbers[skip .. skip + n) and goes to [at, at + n) of what the caller fills.
template <class Use>
void ForEachPiece(RandomStream stream, uint64_t first, uint64_t count, const Use& use) {
  uint32_t numbers[kNumbers];
  for (uint64_t at = 0; at < count;) {
    const uint64_t skip = (first + at) % 4, n = std::min<uint64_t>(kNumbers - skip, count - at);
    for (uint64_t i = 0; i < skip + n; i += 16) FourBlocks(stream, (first + at + i) / 4, numbers + i);
    use(numbers, skip, at, n);
    at += n;
  }
}

/// Normals of the stream's numbers, pair by pair.
void ToNormals(const uint32_t (&numbers)[kNumbers], float mean, float stddev, float (&out)[kNumbers]) {
  constexpr int kPairs = kNumbers / 2;
  float first[kPairs], second[kPairs];
#pragma omp simd
  for (int i = 0; i < kPairs; ++i) {
    const detail::NormalPair pair = detail::NormalsOf(numbers[2 * i], numbers[2 * i + 1], mean, stddev);
    first[i] = pair.first;
    second[i] = pair.second;
  }
  for (int i = 0; i < kPairs; ++i) out[2 * i] = first[i], out[2 * i + 1] = second[i];
}

}  // namespace

std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  detail::PhiloxWords words{{counter[0], counter[1], counter[2], counter[3]}};
  detail::PhiloxRounds(words, key[0], key[1]);
  return {words.v[0], words.v[1], words.v[2], words.v[3]};
}

void RandomBits(RandomStream stream, uint64_t first, std::span<uint32_t> out) {
  ForEachPiece(stream, first, out.size(),
               [&](const uint32_t(&numbers)[kNumbers], uint64_t skip, uint64_t at, uint64_t n) {
                 std::copy_n(numbers + skip, n, out.data() + at);
               });
}

void FillNormal(const KernelContext& context, RandomStream stream, uint64_t first, float mean, float stddev,
                Tensor out) {
  detail::CheckVector("FillNormal", "out", out, DType::f32, out.numel());
  if (detail::RanOnCuda("FillNormal", cuda::FillNormal, context, stream, first, mean, stddev, out)) return;
  float* to = out.as<float>();
  detail::ParallelBlocks(context, out.numel(), detail::kElementsPerBlock, [&](int64_t begin, int64_t end) {
    ForEachPiece(stream, first + static_cast<uint64_t>(begin), static_cast<uint64_t>(end - begin),
                 [&](const uint32_t(&numbers)[kNumbers], uint64_t skip, uint64_t at, uint64_t n) {
                   float normals[kNumbers];
                   ToNormals(numbers, mean, stddev, normals);
                   std::copy_n(normals + skip, n, to + begin + at);
                 });
  });
}

}  // namespace ds
