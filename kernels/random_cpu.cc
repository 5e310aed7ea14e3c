#include "kernels/random.h"

#include <algorithm>
#include <cmath>

#include "kernels/check.h"
#include "kernels/parallel.h"
#include "kernels/vector_math.h"

namespace ds {
namespace {

constexpr uint32_t kMultiplier0 = 0xD2511F53u, kMultiplier1 = 0xCD9E8D57u;
constexpr uint32_t kWeyl0 = 0x9E3779B9u, kWeyl1 = 0xBB67AE85u;
constexpr int kRounds = 10;

constexpr uint32_t Low(uint64_t x) { return static_cast<uint32_t>(x); }
constexpr uint32_t High(uint64_t x) { return static_cast<uint32_t>(x >> 32); }

constexpr int kBlocks = 64;  ///< Philox blocks that are computed side by side, a vector lane each
constexpr int kNumbers = 4 * kBlocks;

/// out[4 i + w] = word w of the block with counter first_block + i.
void ManyBlocks(RandomStream stream, uint64_t first_block, uint32_t (&out)[kNumbers]) {
  uint32_t c0[kBlocks], c1[kBlocks], c2[kBlocks], c3[kBlocks];
  for (int i = 0; i < kBlocks; ++i) {
    const uint64_t block = first_block + static_cast<uint64_t>(i);
    c0[i] = Low(block), c1[i] = High(block), c2[i] = Low(stream.site), c3[i] = High(stream.site);
  }
  uint32_t key0 = Low(stream.seed), key1 = High(stream.seed);
  for (int round = 0; round < kRounds; ++round) {
#pragma omp simd
    for (int i = 0; i < kBlocks; ++i) {
      const uint64_t product0 = uint64_t{kMultiplier0} * c0[i], product1 = uint64_t{kMultiplier1} * c2[i];
      c0[i] = High(product1) ^ c1[i] ^ key0;
      c1[i] = Low(product1);
      c2[i] = High(product0) ^ c3[i] ^ key1;
      c3[i] = Low(product0);
    }
    key0 += kWeyl0, key1 += kWeyl1;
  }
  for (int i = 0; i < kBlocks; ++i)
    out[4 * i] = c0[i], out[4 * i + 1] = c1[i], out[4 * i + 2] = c2[i], out[4 * i + 3] = c3[i];
}

/// use(numbers, from, n): consecutive pieces of the stream that together are its numbers [first, first + count); a
/// piece is numbers[skip .. skip + n) and goes to [at, at + n) of what the caller fills.
template <class Use>
void ForEachPiece(RandomStream stream, uint64_t first, uint64_t count, const Use& use) {
  uint32_t numbers[kNumbers];
  for (uint64_t at = 0; at < count;) {
    const uint64_t skip = (first + at) % 4, n = std::min<uint64_t>(kNumbers - skip, count - at);
    ManyBlocks(stream, (first + at) / 4, numbers);
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
    const float uniform = std::fma(static_cast<float>(numbers[2 * i]), 0x1p-32f, 0x1p-33f);
    const float squared = -2.0f * detail::LogOfPositive(uniform);
    const float radius = std::sqrt(squared > 0.0f ? squared : 0.0f);
    const detail::CosSin angle = detail::CosSinOfTurn(numbers[2 * i + 1]);
    first[i] = std::fma(stddev, radius * angle.cos, mean);
    second[i] = std::fma(stddev, radius * angle.sin, mean);
  }
  for (int i = 0; i < kPairs; ++i) out[2 * i] = first[i], out[2 * i + 1] = second[i];
}

}  // namespace

std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = uint64_t{kMultiplier0} * counter[0], product1 = uint64_t{kMultiplier1} * counter[2];
    counter = {High(product1) ^ counter[1] ^ key[0], Low(product1), High(product0) ^ counter[3] ^ key[1],
               Low(product0)};
    key[0] += kWeyl0, key[1] += kWeyl1;
  }
  return counter;
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
