// Attention backward by warpgroups of Hopper, for heads of 64 elements without dropout: the two kernels of
// attention_mma_backward_cuda.cu with larger blocks and asynchronous products. A warpgroup has 64 queries, or keys,
// whose gradients it sums in registers; two of them share the blocks that a third fetches, each at its own pace, so
// that one computes exponentials while the other multiplies (Shah et al. 2024, FlashAttention-3). Nothing is added
// atomically: the same bits in every run.
#include "kernels/cuda_attention_tiles.h"
#include "kernels/cuda_launch.h"
#include "kernels/cuda_wgmma.h"

namespace ds::cuda {
namespace {

constexpr int kHead = 64, kBlock = 64;  ///< rows of a block that comes by, and of a warpgroup
constexpr int kGroups = 2, kConsumers = kGroups * wgmma::kThreads, kOwnRows = kGroups * kBlock;
constexpr int kFetchers = wgmma::kThreads;  ///< a warpgroup fetches the blocks
constexpr int kThreads = kConsumers + kFetchers;
[[maybe_unused]] constexpr int kConsumerRegisters = 232, kFetcherRegisters = 40;  ///< of 65536 / kThreads
constexpr int kStages = 4;
constexpr int kTileBytes = kBlock * wgmma::kRowBytes;
constexpr int kStatisticsBytes = kStages * 2 * kBlock * 4;
constexpr int kSharedBytes = 1024 + (2 * kGroups + 2 * kStages) * kTileBytes + kStatisticsBytes +
                             2 * kStages * static_cast<int>(sizeof(wgmma::Barrier));

/// Shared memory: the block's own two matrices, stages of two tiles and two rows of statistics, and of each stage
/// whether it is full and whether it is free.
template <class T>
struct Shared {
  T* own[2];  ///< of kOwnRows rows
  T* stages;
  float* statistics;
  wgmma::Barrier *full, *free;

  __device__ explicit Shared(unsigned char* memory) {
    memory += (1024 - SharedAddress(memory) % 1024) % 1024;  // as tiles are described
    for (T*& matrix : own) {
      matrix = reinterpret_cast<T*>(memory);
      memory += kGroups * kTileBytes;
    }
    stages = reinterpret_cast<T*>(memory);
    memory += 2 * kStages * kTileBytes;
    statistics = reinterpret_cast<float*>(memory);
    full = reinterpret_cast<wgmma::Barrier*>(memory + kStatisticsBytes);
    free = full + kStages;
  }
  /// Tile 0 or 1 of the stage of a step.
  __device__ T* Stage(int step, int tile) const {
    return stages + (step % kStages * 2 + tile) * (kTileBytes / static_cast<int>(sizeof(T)));
  }
  /// log_sum_exp (0) or delta (1) of a step's queries.
  __device__ float* Statistics(int step, int which) const { return statistics + (step % kStages * 2 + which) * kBlock; }
  __device__ const T* Own(int matrix, int group) const {
    return own[matrix] + group * (kTileBytes / static_cast<int>(sizeof(T)));
  }

  __device__ void Start() const {
    if (threadIdx.x != 0) return;
    for (int stage = 0; stage < kStages; ++stage) {
      full[stage].Start(kFetchers);
      free[stage].Start(kConsumers);
    }
  }
  __device__ void WaitFull(int step) const {
    full[step % kStages].Wait(step / kStages % 2);
    wgmma::Publish();  // what was copied, to the products that follow
  }
  __device__ void WaitFree(int step) const {
    if (step >= kStages) free[step % kStages].Wait((step / kStages - 1) % 2);
  }
  /// By every thread that is done with a step: racecheck does not see that a warp's other threads are done where one
  /// arrives for all of them, and it costs nothing that could be measured.
  __device__ void Release(int step) const { free[step % kStages].Arrive(); }
};

/// Starts to copy rows [begin, begin + kRows) of a head to a WideTile, by threads `id` of kCopiers; rows behind the
/// tokens are 0.
template <int kRows, int kCopiers, class T>
__device__ inline void LoadRows(int id, T* tile, const AttentionLayout& at, HeadRows<const T> head, int begin) {
  constexpr int kPieces = kHead / kPackSize<T>;
  static_assert(kCopiers % kPieces == 0);
  const int piece = id % kPieces;
  char* bytes = reinterpret_cast<char*>(tile);
  const T* from = head.first + piece * kPackSize<T>;
#pragma unroll 4
  for (int row = id / kPieces; row < kRows; row += kCopiers / kPieces) {
    const bool valid = begin + row < at.tokens;
    CopyAsync(bytes + wgmma::PlaceOf(row, piece), valid ? from + (begin + row) * head.stride : from, valid);
  }
}

/// The same of a number of a row of statistics.
__device__ inline void LoadNumber(int i, float* to, const AttentionLayout& at, const float* row, int begin) {
  const bool valid = begin + i < at.tokens;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(SharedAddress(to + i)),
               "l"(valid ? row + begin + i : row), "r"(valid ? 4 : 0)
               : "memory");
}

/// Where a block of 64 x 64 scores lies: wholly among those that are seen, on the diagonal, or wholly unseen.
enum class Place { seen, diagonal, unseen };
__device__ inline Place PlaceOfScores(int first_query, int first_key) {
  if (first_key > first_query + kBlock - 1) return Place::unseen;
  return first_key + kBlock - 1 <= first_query ? Place::seen : Place::diagonal;
}

/// All of them are done with the stages.
__device__ inline void WaitForConsumers() { asm volatile("bar.sync 1, %0;" ::"n"(kConsumers) : "memory"); }

/// dqueries of kOwnRows queries of a head: blocks of keys come by, two tiles of keys and values.
template <class T>
__global__ void __launch_bounds__(kThreads, 1)
    QueryGradientKernel(AttentionLayout at, AttentionTensors<T> tensors, float scale) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ unsigned char memory[];
  const Shared<T> shared(memory);
  const int blocks = BlocksOf(at.tokens, kOwnRows), id = static_cast<int>(blockIdx.x);
  const int heads = at.batch * at.heads;  // the longest rows of all heads first
  const int begin = (blocks - 1 - id / heads) * kOwnRows, head = id % heads % at.heads, sample = id % heads / at.heads;
  const int kv = head / at.Group(), group = static_cast<int>(threadIdx.x) / wgmma::kThreads;
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  const int steps = BlocksOf(min(at.tokens, begin + kOwnRows), kBlock);

  shared.Start();
  if (group < kGroups) {
    LoadRows<kOwnRows, kConsumers>(static_cast<int>(threadIdx.x), shared.own[0], at,
                                   HeadRows<const T>{tensors.qkv + at.Slot(sample, head), at.token_stride}, begin);
    LoadRows<kOwnRows, kConsumers>(static_cast<int>(threadIdx.x), shared.own[1], at,
                                   HeadRows<const T>{tensors.dout + at.Out(sample, head), at.out_stride}, begin);
    CommitCopies();
    WaitCopies<0>();
  }
  __syncthreads();

  if (group == kGroups) {
    wgmma::GiveRegisters<kFetcherRegisters>();
    const int fetcher = static_cast<int>(threadIdx.x) - kConsumers;
    const HeadRows<const T> k{tensors.qkv + at.Slot(sample, at.heads + kv), at.token_stride};
    const HeadRows<const T> v{tensors.qkv + at.Slot(sample, at.heads + at.kv_heads + kv), at.token_stride};
    for (int step = 0; step < steps; ++step) {
      shared.WaitFree(step);
      LoadRows<kBlock, kFetchers>(fetcher, shared.Stage(step, 0), at, k, step * kBlock);
      LoadRows<kBlock, kFetchers>(fetcher, shared.Stage(step, 1), at, v, step * kBlock);
      shared.full[step % kStages].ArriveAfterCopies();
    }
  } else {
    wgmma::TakeRegisters<kConsumerRegisters>();
    float gradient[8][4] = {};
    const int group_begin = begin + group * kBlock, first_row = begin + warp * 16 + lane / 4;
    const int64_t rows = at.Rows(sample, head);
    const float to_power = scale * kLog2E;
    float log_sum_exp[2], delta[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const bool valid = first_row + 8 * half < at.tokens;
      log_sum_exp[half] = valid ? tensors.log_sum_exp[rows + first_row + 8 * half] * kLog2E : INFINITY;
      delta[half] = valid ? tensors.delta[rows + first_row + 8 * half] : 0.0f;
    }
    for (int step = 0; step < steps; ++step) {
      shared.WaitFull(step);
      const Place place = PlaceOfScores(group_begin, step * kBlock);
      if (place == Place::unseen) {  // of all threads of the warpgroup
        shared.Release(step);
        continue;
      }
      // Anew in every step: the compiler (CUDA 13.0) gives their registers to others where they are kept.
      LeftOperand<4> queries = wgmma::LoadLeft(shared.Own(0, group)), douts = wgmma::LoadLeft(shared.Own(1, group));
      float p[8][4], dp[8][4];
      wgmma::Pin(gradient);
      wgmma::Begin();
      wgmma::MultiplyTransposed(p, queries, shared.Stage(step, 0));
      wgmma::Commit();
      wgmma::MultiplyTransposed(dp, douts, shared.Stage(step, 1));
      wgmma::Commit();
      wgmma::Wait<1>();
      wgmma::Pin(p);
#pragma unroll
      for (int t = 0; t < 8; ++t)
#pragma unroll
        for (int e = 0; e < 4; ++e) p[t][e] = PowerOfTwo(__fmaf_rn(p[t][e], to_power, -log_sum_exp[e / 2]));
      if (place == Place::diagonal) {
#pragma unroll
        for (int t = 0; t < 8; ++t)
#pragma unroll
          for (int e = 0; e < 4; ++e)
            if (step * kBlock + t * 8 + lane % 4 * 2 + e % 2 > first_row + e / 2 * 8) p[t][e] = 0;
      }
      wgmma::Wait<0>();
      wgmma::Pin(dp), wgmma::Pin(queries), wgmma::Pin(douts);
#pragma unroll
      for (int t = 0; t < 8; ++t)
#pragma unroll
        for (int e = 0; e < 4; ++e) p[t][e] *= dp[t][e] - delta[e / 2];
      LeftOperand<4> dscores = ToLeftOperand<T>(p);
      wgmma::Pin(dscores), wgmma::Pin(gradient);
      wgmma::Begin();
      wgmma::AddProduct(gradient, dscores, shared.Stage(step, 0));
      wgmma::Commit();
      wgmma::Wait<0>();
      wgmma::Pin(dscores), wgmma::Pin(gradient);
      shared.Release(step);
    }
    WaitForConsumers();
    StoreProduct(gradient, {scale, scale}, reinterpret_cast<T*>(shared.stages) + warp * 16 * TileStride<T>(kHead), at,
                 HeadRows<T>{tensors.dqkv + at.Slot(sample, head), at.token_stride}, begin + warp * 16, 0);
  }
#endif
}

/// dkeys and dvalues of kOwnRows keys: blocks of queries of all heads of the group come by, two tiles of queries and
/// gradients of the outputs. Scores are transposed, keys x queries.
template <class T>
__global__ void __launch_bounds__(kThreads, 1)
    KeyGradientKernel(AttentionLayout at, AttentionTensors<T> tensors, float scale) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ unsigned char memory[];
  const Shared<T> shared(memory);
  const int id = static_cast<int>(blockIdx.x), heads = at.batch * at.kv_heads;  // the most seen keys first
  const int begin = id / heads * kOwnRows, kv = id % heads % at.kv_heads, sample = id % heads / at.kv_heads;
  const int group = static_cast<int>(threadIdx.x) / wgmma::kThreads;
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  const int first_block = begin / kBlock, query_blocks = BlocksOf(at.tokens, kBlock) - first_block;
  const int steps = at.Group() * query_blocks;  // all blocks of the group's first head, of its second, ...
  const auto query_of = [&](int step) { return (first_block + step % query_blocks) * kBlock; };
  const HeadRows<T> k{tensors.dqkv + at.Slot(sample, at.heads + kv), at.token_stride};
  const HeadRows<T> v{tensors.dqkv + at.Slot(sample, at.heads + at.kv_heads + kv), at.token_stride};

  shared.Start();
  if (group < kGroups) {
    LoadRows<kOwnRows, kConsumers>(static_cast<int>(threadIdx.x), shared.own[0], at,
                                   HeadRows<const T>{tensors.qkv + at.Slot(sample, at.heads + kv), at.token_stride},
                                   begin);
    LoadRows<kOwnRows, kConsumers>(
        static_cast<int>(threadIdx.x), shared.own[1], at,
        HeadRows<const T>{tensors.qkv + at.Slot(sample, at.heads + at.kv_heads + kv), at.token_stride}, begin);
    CommitCopies();
    WaitCopies<0>();
  }
  __syncthreads();

  if (group == kGroups) {
    wgmma::GiveRegisters<kFetcherRegisters>();
    const int fetcher = static_cast<int>(threadIdx.x) - kConsumers;
    static_assert(kFetchers == 2 * kBlock);
    for (int step = 0; step < steps; ++step) {
      const int head = kv * at.Group() + step / query_blocks, query = query_of(step);
      shared.WaitFree(step);
      LoadRows<kBlock, kFetchers>(fetcher, shared.Stage(step, 0), at,
                                  HeadRows<const T>{tensors.qkv + at.Slot(sample, head), at.token_stride}, query);
      LoadRows<kBlock, kFetchers>(fetcher, shared.Stage(step, 1), at,
                                  HeadRows<const T>{tensors.dout + at.Out(sample, head), at.out_stride}, query);
      // Rows behind the tokens have probabilities of 1 and nothing to multiply them by.
      const float* of_head = (fetcher < kBlock ? tensors.log_sum_exp : tensors.delta) + at.Rows(sample, head);
      LoadNumber(fetcher % kBlock, shared.Statistics(step, fetcher / kBlock), at, of_head, query);
      shared.full[step % kStages].ArriveAfterCopies();
    }
  } else {
    wgmma::TakeRegisters<kConsumerRegisters>();
    float dkey[8][4] = {}, dvalue[8][4] = {};
    const int group_begin = begin + group * kBlock, first_key = begin + warp * 16 + lane / 4;
    const float to_power = scale * kLog2E;
    for (int step = 0; step < steps; ++step) {
      shared.WaitFull(step);
      const int query = query_of(step);
      const Place place = PlaceOfScores(query, group_begin);
      if (place == Place::unseen) {  // of all threads of the warpgroup
        shared.Release(step);
        continue;
      }
      // Anew in every step: the compiler (CUDA 13.0) gives their registers to others where they are kept.
      LeftOperand<4> keys = wgmma::LoadLeft(shared.Own(0, group)), values = wgmma::LoadLeft(shared.Own(1, group));
      float p[8][4], dp[8][4];
      wgmma::Begin();
      wgmma::MultiplyTransposed(p, keys, shared.Stage(step, 0));
      wgmma::Commit();
      wgmma::MultiplyTransposed(dp, values, shared.Stage(step, 1));
      wgmma::Commit();
      wgmma::Wait<1>();
      wgmma::Pin(p);
      const float* log_sum_exp = shared.Statistics(step, 0) + lane % 4 * 2;
      const float* delta = shared.Statistics(step, 1) + lane % 4 * 2;
#pragma unroll
      for (int t = 0; t < 8; ++t) {
        const float2 number = *reinterpret_cast<const float2*>(log_sum_exp + t * 8);
        const float subtract[2] = {number.x * kLog2E, number.y * kLog2E};
#pragma unroll
        for (int e = 0; e < 4; ++e) p[t][e] = PowerOfTwo(__fmaf_rn(p[t][e], to_power, -subtract[e % 2]));
      }
      if (place == Place::diagonal) {
#pragma unroll
        for (int t = 0; t < 8; ++t)
#pragma unroll
          for (int e = 0; e < 4; ++e)
            if (first_key + e / 2 * 8 > query + t * 8 + lane % 4 * 2 + e % 2) p[t][e] = 0;
      }
      LeftOperand<4> scores = ToLeftOperand<T>(p);
      wgmma::Wait<0>();
      wgmma::Pin(dp), wgmma::Pin(keys), wgmma::Pin(values);
      wgmma::Pin(scores), wgmma::Pin(dvalue);
      wgmma::Begin();
      wgmma::AddProduct(dvalue, scores, shared.Stage(step, 1));
      wgmma::Commit();
#pragma unroll
      for (int t = 0; t < 8; ++t) {
        const float2 number = *reinterpret_cast<const float2*>(delta + t * 8);
#pragma unroll
        for (int e = 0; e < 4; ++e) dp[t][e] = p[t][e] * (dp[t][e] - (e % 2 ? number.y : number.x));
      }
      LeftOperand<4> dscores = ToLeftOperand<T>(dp);
      wgmma::Pin(dscores), wgmma::Pin(dkey);
      wgmma::Begin();
      wgmma::AddProduct(dkey, dscores, shared.Stage(step, 0));
      wgmma::Commit();
      wgmma::Wait<0>();
      wgmma::Pin(scores), wgmma::Pin(dscores), wgmma::Pin(dvalue), wgmma::Pin(dkey);
      shared.Release(step);
    }
    WaitForConsumers();
    T* tile = reinterpret_cast<T*>(shared.stages) + warp * 16 * TileStride<T>(kHead);
    StoreProduct(dkey, {scale, scale}, tile, at, k, begin + warp * 16, 0);
    __syncwarp();
    StoreProduct(dvalue, {1.0f, 1.0f}, tile, at, v, begin + warp * 16, 0);
  }
#endif
}

constexpr int kDeltaThreads = 256, kLanesOfRow = 8;

/// delta = dout . out of each row of 64 elements, by eight lanes.
template <class T>
__global__ void __launch_bounds__(kDeltaThreads) DeltaKernel(AttentionLayout at, AttentionTensors<T> tensors) {
  constexpr int N = kPackSize<T>;
  static_assert(kLanesOfRow * N == kHead);
  const int64_t id = static_cast<int64_t>(blockIdx.x) * kDeltaThreads + threadIdx.x;
  const int64_t row = id / kLanesOfRow, token = row / at.heads;  // of [B, T, heads]
  const bool valid = token < static_cast<int64_t>(at.batch) * at.tokens;
  float sum = 0;
  if (valid) {
    const Pack<float, N> a = Load<N>(tensors.dout + id * N), b = Load<N>(tensors.out + id * N);
#pragma unroll
    for (int i = 0; i < N; ++i) sum = __fmaf_rn(a[i], b[i], sum);
  }
#pragma unroll
  for (int step = kLanesOfRow / 2; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  if (valid && id % kLanesOfRow == 0)
    tensors.delta[at.Rows(static_cast<int>(token / at.tokens), static_cast<int>(row % at.heads)) + token % at.tokens] =
        sum;
}

}  // namespace

template <class T>
void AttentionBackwardWgmma(cudaStream_t stream, const AttentionLayout& at, const AttentionTensors<T>& tensors) {
  const char* name = "AttentionBackward";
  const int64_t lanes = static_cast<int64_t>(at.batch) * at.tokens * at.heads * kLanesOfRow;
  DeltaKernel<<<static_cast<unsigned>((lanes + kDeltaThreads - 1) / kDeltaThreads), kDeltaThreads, 0, stream>>>(
      at, tensors);
  CheckLaunch(name);
  const float scale = 1.0f / std::sqrt(static_cast<float>(kHead));
  const int blocks = BlocksOf(at.tokens, kOwnRows);
  LaunchWithShared(name, KeyGradientKernel<T>, static_cast<unsigned>(at.batch * at.kv_heads * blocks), kThreads,
                   kSharedBytes, stream, at, tensors, scale);
  LaunchWithShared(name, QueryGradientKernel<T>, static_cast<unsigned>(at.batch * at.heads * blocks), kThreads,
                   kSharedBytes, stream, at, tensors, scale);
}

template void AttentionBackwardWgmma(cudaStream_t, const AttentionLayout&, const AttentionTensors<__nv_bfloat16>&);
template void AttentionBackwardWgmma(cudaStream_t, const AttentionLayout&, const AttentionTensors<__half>&);

bool WgmmaKnows(const AttentionLayout& at, DType dtype) {
#if defined(DS_COMPILED_FOR_SM90A)
  if (at.head_size != kHead || !at.aligned || at.mask.active || SizeOf(dtype) != 2) return false;
  int device = 0, major = 0, minor = 0;
  CheckCuda(cudaGetDevice(&device), "cudaGetDevice");
  CheckCuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "cudaDeviceGetAttribute");
  CheckCuda(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "cudaDeviceGetAttribute");
  return major == 9 && minor == 0;
#else
  (void)at, (void)dtype;
  return false;
#endif
}

}  // namespace ds::cuda
