// Philox 4x32-10 and normal numbers from it (random.h): the same bits on every device. Internal to kernels/.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/host_device.h"
#include "kernels/random.h"
#include "kernels/vector_math.h"

namespace ds::detail {

constexpr uint32_t kMultiplier0 = 0xD2511F53u, kMultiplier1 = 0xCD9E8D57u;
constexpr uint32_t kWeyl0 = 0x9E3779B9u, kWeyl1 = 0xBB67AE85u;
constexpr int kRounds = 10;

DS_HOST_DEVICE constexpr uint32_t Low(uint64_t x) { return static_cast<uint32_t>(x); }
DS_HOST_DEVICE constexpr uint32_t High(uint64_t x) { return static_cast<uint32_t>(x >> 32); }

struct PhiloxWords {
  uint32_t v[4];
};

/// counter becomes its block of random words.
DS_HOST_DEVICE inline void PhiloxRounds(PhiloxWords& counter, uint32_t key0, uint32_t key1) {
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = uint64_t{kMultiplier0} * counter.v[0], product1 = uint64_t{kMultiplier1} * counter.v[2];
    counter = {
        {High(product1) ^ counter.v[1] ^ key0, Low(product1), High(product0) ^ counter.v[3] ^ key1, Low(product0)}};
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
}

/// Numbers 4 * block .. 4 * block + 3 of a stream.
DS_HOST_DEVICE inline PhiloxWords PhiloxBlock(RandomStream stream, uint64_t block) {
  PhiloxWords words{{Low(block), High(block), Low(stream.site), High(stream.site)}};
  PhiloxRounds(words, Low(stream.seed), High(stream.seed));
  return words;
}

/// Normals 2j and 2j + 1 from the stream's numbers 2j and 2j + 1.
struct NormalPair {
  float first, second;
};
[[gnu::always_inline]] DS_HOST_DEVICE inline NormalPair NormalsOf(uint32_t number0, uint32_t number1, float mean,
                                                                  float stddev) {
  const float uniform = std::fma(static_cast<float>(number0), 0x1p-32f, 0x1p-33f);
  const float squared = -2.0f * LogOfPositive(uniform);
  const float radius = std::sqrt(squared > 0.0f ? squared : 0.0f);
  const CosSin angle = CosSinOfTurn(number1);
  return {std::fma(stddev, radius * angle.cos, mean), std::fma(stddev, radius * angle.sin, mean)};
}

}  // namespace ds::detail
