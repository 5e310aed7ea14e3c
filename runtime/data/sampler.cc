// The order of samples, as a function: position -> index, in constant memory.
//
// A permutation of [0, n) is drawn by a Feistel network (Luby & Rackoff 1988) over the smallest [0, 4^h) that holds n:
// a network is a bijection whatever its round function is. Where it leads out of [0, n) it is applied again
// ("cycle walking": Black & Rogaway 2002), which keeps it a bijection on [0, n) and takes less than 4 turns on average.
// The round function is the finalizer of SplitMix64 (Steele et al. 2014) over half, round key; keys come from the seed
// and the epoch. This is for shuffling, not for secrecy.
#include "runtime/base/error.h"
#include "runtime/data/dataset.h"

namespace ds {
namespace {

constexpr int kRounds = 8;

uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

uint64_t Feistel(uint64_t value, int half_bits, uint64_t key) {
  const uint64_t mask = (uint64_t{1} << half_bits) - 1;
  uint64_t left = value >> half_bits, right = value & mask;
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t next = left ^ (Mix(right ^ Mix(key + static_cast<uint64_t>(round))) & mask);
    left = right;
    right = next;
  }
  return left << half_bits | right;
}

}  // namespace

Sampler::Sampler(int64_t samples, uint64_t seed, bool shuffle) : samples_(samples), seed_(seed), shuffle_(shuffle) {
  if (samples <= 0) throw UsageError("no samples to draw from");
}

int64_t Sampler::At(int64_t position) const {
  if (position < 0) throw RuntimeError("position " + std::to_string(position) + " of the data");
  const int64_t epoch = position / samples_;
  uint64_t index = static_cast<uint64_t>(position % samples_);
  if (!shuffle_) return static_cast<int64_t>(index);
  const uint64_t n = static_cast<uint64_t>(samples_);
  int half_bits = 1;
  while (half_bits < 31 && uint64_t{1} << (2 * half_bits) < n) ++half_bits;
  if (uint64_t{1} << (2 * half_bits) < n) half_bits = 32;
  const uint64_t key = Mix(Mix(seed_) ^ static_cast<uint64_t>(epoch));
  do {
    index = Feistel(index, half_bits, key);
  } while (index >= n);
  return static_cast<int64_t>(index);
}

}  // namespace ds
