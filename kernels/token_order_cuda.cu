#include <bit>

#include "kernels/cuda_check.h"
#include "kernels/cuda_token_order.h"
#include "kernels/workspace.h"

// A radix sort, stable, from the lowest eight bits upwards. A pass counts each digit in every tile of tokens, turns the
// counts into places (digit by digit, within a digit tile by tile), and moves the tokens there.

namespace ds::cuda {
namespace {

constexpr int kDigitBits = 8, kDigits = 1 << kDigitBits;
constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kRounds = static_cast<int>(kTokensPerSortTile) / kThreads;  ///< tokens of a thread
constexpr int kScanThreads = 1024;
static_assert(kThreads == kDigits);  // a thread looks after a digit

struct Tokens {
  const int32_t *ids, *places;  ///< no places: token i is at i
  int64_t count;
  int32_t vocabulary;

  __device__ int32_t Id(int64_t i) const {
    const int32_t id = ids[i];
    return id >= 0 && id < vocabulary ? id : vocabulary;
  }
  __device__ int32_t Place(int64_t i) const { return places ? places[i] : static_cast<int32_t>(i); }
};

__device__ int Digit(int32_t id, int shift) { return (id >> shift) & (kDigits - 1); }

/// counts[digit * tiles + tile] = tokens of the tile with that digit.
__global__ void __launch_bounds__(kThreads) CountDigits(Tokens tokens, int shift, int32_t* counts) {
  __shared__ int32_t tile_counts[kDigits];
  tile_counts[threadIdx.x] = 0;
  __syncthreads();
  for (int r = 0; r < kRounds; ++r) {
    const int64_t i = blockIdx.x * kTokensPerSortTile + r * kThreads + threadIdx.x;
    if (i < tokens.count) atomicAdd(&tile_counts[Digit(tokens.Id(i), shift)], 1);
  }
  __syncthreads();
  counts[static_cast<int64_t>(threadIdx.x) * gridDim.x + blockIdx.x] = tile_counts[threadIdx.x];
}

/// Each count becomes the sum of those before it. One block.
__global__ void __launch_bounds__(kScanThreads) SumBefore(int32_t* counts, int64_t n) {
  __shared__ int32_t warps[kScanThreads / 32];
  const int64_t per_thread = (n + kScanThreads - 1) / kScanThreads;
  const int64_t begin = min(n, threadIdx.x * per_thread), end = min(n, begin + per_thread);
  int32_t sum = 0;
  for (int64_t i = begin; i < end; ++i) sum += counts[i];
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int32_t through = sum;
  for (unsigned offset = 1; offset < 32; offset *= 2) {
    const int32_t other = __shfl_up_sync(0xffffffffu, through, offset);
    if (lane >= offset) through += other;
  }
  if (lane == 31) warps[warp] = through;
  __syncthreads();
  int32_t before = through - sum;
  for (unsigned w = 0; w < warp; ++w) before += warps[w];
  for (int64_t i = begin; i < end; ++i) {
    const int32_t count = counts[i];
    counts[i] = before;
    before += count;
  }
}

/// Moves the tokens of a tile. places[digit * tiles + tile]: where the first with that digit goes. A warp has a run of
/// the tile's tokens and goes through it 32 at a time, so that ranks follow the order of the tokens.
__global__ void __launch_bounds__(kThreads)
    MoveTokens(Tokens tokens, int shift, const int32_t* places, int32_t* ids_out, int32_t* places_out) {
  __shared__ int32_t counts[kWarps][kDigits];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int w = 0; w < kWarps; ++w) counts[w][threadIdx.x] = 0;
  __syncthreads();

  const int64_t first = blockIdx.x * kTokensPerSortTile + warp * kRounds * 32 + lane;
  int32_t id[kRounds], rank[kRounds];  // rank: among the warp's tokens with the same digit
#pragma unroll
  for (int r = 0; r < kRounds; ++r) {
    const int64_t i = first + r * 32;
    const bool exists = i < tokens.count;
    id[r] = exists ? tokens.Id(i) : 0;
    const int digit = exists ? Digit(id[r], shift) : kDigits;
    const unsigned same = __match_any_sync(0xffffffffu, digit);
    const int leader = __ffs(static_cast<int>(same)) - 1;
    int32_t before = 0;
    if (lane == leader && exists) {
      before = counts[warp][digit];
      counts[warp][digit] = before + __popc(same);
    }
    __syncwarp();
    rank[r] = __shfl_sync(0xffffffffu, before, leader) + __popc(same & ((1u << lane) - 1u));
  }
  __syncthreads();
  int32_t place = places[static_cast<int64_t>(threadIdx.x) * gridDim.x + blockIdx.x];
  for (int w = 0; w < kWarps; ++w) {
    const int32_t count = counts[w][threadIdx.x];
    counts[w][threadIdx.x] = place;
    place += count;
  }
  __syncthreads();
#pragma unroll
  for (int r = 0; r < kRounds; ++r) {
    const int64_t i = first + r * 32;
    if (i >= tokens.count) continue;
    const int32_t to = counts[warp][Digit(id[r], shift)] + rank[r];
    ids_out[to] = id[r];
    places_out[to] = tokens.Place(i);
  }
}

}  // namespace

TokenOrder SortTokens(const KernelContext& context, const char* kernel, const int32_t* ids, int64_t n,
                      int32_t vocabulary) {
  auto* memory = Workspace<int32_t>(context, kernel, EmbeddingBackwardWorkspaceBytes(n));
  const int64_t tiles = (n + kTokensPerSortTile - 1) / kTokensPerSortTile;
  int32_t* sorted[2][2] = {{memory, memory + n}, {memory + 2 * n, memory + 3 * n}};
  int32_t* counts = memory + 4 * n;
  Tokens tokens{ids, nullptr, n, vocabulary};
  const int bits = std::bit_width(static_cast<uint32_t>(vocabulary));
  int into = 0;
  for (int shift = 0; shift < bits; shift += kDigitBits, into = 1 - into) {
    const auto blocks = static_cast<unsigned>(tiles);
    CountDigits<<<blocks, kThreads, 0, Stream(context)>>>(tokens, shift, counts);
    CheckLaunch(kernel);
    SumBefore<<<1, kScanThreads, 0, Stream(context)>>>(counts, tiles * kDigits);
    CheckLaunch(kernel);
    MoveTokens<<<blocks, kThreads, 0, Stream(context)>>>(tokens, shift, counts, sorted[into][0], sorted[into][1]);
    CheckLaunch(kernel);
    tokens.ids = sorted[into][0];
    tokens.places = sorted[into][1];
  }
  return {tokens.ids, tokens.places};
}

}  // namespace ds::cuda
