// Timing the library's algorithms for a product.
#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "kernels/cublaslt.h"
#include "kernels/cuda_check.h"
#include "kernels/fp8_math.h"
#include "kernels/workspace.h"

namespace ds::cuda {
namespace {

/// n numbers between -1 and 1 in host memory. Products of zeros or ones draw less power and so run faster than
/// training's.
template <class T>
std::vector<uint8_t> RandomElements(size_t n) {
  std::vector<uint8_t> bytes(n * sizeof(T));
  std::minstd_rand generator(1);
  auto* elements = reinterpret_cast<T*>(bytes.data());
  for (size_t i = 0; i < n; ++i) elements[i] = static_cast<T>(static_cast<float>(generator()) * 0x1p-30f - 1.0f);
  return bytes;
}

/// Codes of numbers between -1 and 1 times the largest of the format, as a scaled tensor's are.
template <class Format>
std::vector<uint8_t> RandomCodes(size_t n) {
  std::vector<uint8_t> codes(n);
  std::minstd_rand generator(1);
  for (uint8_t& code : codes)
    code = detail::ToFp8<Format>((static_cast<float>(generator()) * 0x1p-30f - 1.0f) * Format::kLargest);
  return codes;
}

std::vector<uint8_t> RandomElements(DType dtype, size_t n) {
  switch (dtype) {
    case DType::f8_e4m3:
      return RandomCodes<detail::E4M3>(n);
    case DType::f8_e5m2:
      return RandomCodes<detail::E5M2>(n);
    case DType::f64:
      return RandomElements<double>(n);
    case DType::bf16:
      return RandomElements<bf16>(n);
    case DType::f16:
      return RandomElements<f16>(n);
    default:
      return RandomElements<float>(n);
  }
}

struct Free {
  void operator()(void* p) const { cudaFree(p); }
};
using DeviceMemory = std::unique_ptr<void, Free>;

/// A random matrix on the device.
DeviceMemory RandomMatrix(const KernelContext& context, DType dtype, int64_t elements) {
  constexpr int64_t kPeriod = 999'983;  // a prime: no two rows are alike
  const std::vector<uint8_t> values = RandomElements(dtype, static_cast<size_t>(std::min(elements, kPeriod)));
  const size_t bytes = static_cast<size_t>(elements) * SizeOf(dtype);
  void* data = nullptr;
  CheckCuda(cudaMalloc(&data, bytes), "cudaMalloc");
  DeviceMemory memory(data);
  size_t filled = std::min(values.size(), bytes);
  CheckCuda(cudaMemcpyAsync(data, values.data(), filled, cudaMemcpyHostToDevice, Stream(context)), "cudaMemcpyAsync");
  while (filled < bytes) {  // the rest from what is there: gigabytes from host memory would take seconds
    const size_t more = std::min(filled, bytes - filled);
    CheckCuda(
        cudaMemcpyAsync(static_cast<uint8_t*>(data) + filled, data, more, cudaMemcpyDeviceToDevice, Stream(context)),
        "cudaMemcpyAsync");
    filled += more;
  }
  CheckCuda(cudaStreamSynchronize(Stream(context)), "cudaStreamSynchronize");
  return memory;
}

class Event {
 public:
  Event() { CheckCuda(cudaEventCreate(&event_), "cudaEventCreate"); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void Record(const KernelContext& context) const {
    CheckCuda(cudaEventRecord(event_, Stream(context)), "cudaEventRecord");
  }
  double SecondsSince(const Event& begin) const {
    float milliseconds = 0;
    CheckCuda(cudaEventSynchronize(event_), "cudaEventSynchronize");
    CheckCuda(cudaEventElapsedTime(&milliseconds, begin.event_, event_), "cudaEventElapsedTime");
    return milliseconds / 1e3;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

template <class Value>
int64_t Config(const cublasLtMatmulAlgo_t& algorithm, cublasLtMatmulAlgoConfigAttributes_t attribute) {
  Value value{};
  size_t written = 0;
  CheckLt(cublasLtMatmulAlgoConfigGetAttribute(&algorithm, attribute, &value, sizeof(value), &written),
          "cublasLtMatmulAlgoConfigGetAttribute");
  return static_cast<int64_t>(value);
}

std::string Describe(const cublasLtMatmulAlgo_t& a) {
  const auto text = [](const char* name, int64_t value) { return name + std::to_string(value); };
  return text("algorithm ", Config<int32_t>(a, CUBLASLT_ALGO_CONFIG_ID)) +
         text(", tile ", Config<uint32_t>(a, CUBLASLT_ALGO_CONFIG_TILE_ID)) +
         text(", stages ", Config<uint32_t>(a, CUBLASLT_ALGO_CONFIG_STAGES_ID)) +
         text(", split-k ", Config<int32_t>(a, CUBLASLT_ALGO_CONFIG_SPLITK_NUM)) +
         text(", reduction ", Config<uint32_t>(a, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME)) +
         text(", swizzle ", Config<uint32_t>(a, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING)) +
         text(", custom ", Config<uint32_t>(a, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION)) +
         text(", inner shape ", Config<uint16_t>(a, CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID)) +
         text(", cluster ", Config<uint16_t>(a, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID));
}

}  // namespace

std::vector<MatMulCandidate> TimeMatMulCandidates(const KernelContext& context, const MatMulKey& key, int limit) {
  const bool has_bias = key.epilogue == MatMulEpilogue::bias || key.epilogue == MatMulEpilogue::bias_gelu;
  const bool has_aux = key.epilogue != MatMulEpilogue::none && key.epilogue != MatMulEpilogue::bias;
  const DeviceMemory a = RandomMatrix(context, key.ab, key.m * key.k),
                     b = RandomMatrix(context, TypeOfB(key.ab), key.k * key.n);
  const DeviceMemory c = RandomMatrix(context, key.c, key.m * key.n), bias = RandomMatrix(context, key.c, key.n);
  const DeviceMemory aux = RandomMatrix(context, key.c, has_aux ? key.m * key.n : 1);
  LtProduct p;
  p.m = key.m, p.n = key.n, p.k = key.k, p.ab = key.ab, p.c_type = key.c;
  p.transpose_a = key.transpose_a, p.transpose_b = key.transpose_b;
  p.accumulate = key.accumulate, p.epilogue = key.epilogue;
  p.lda = key.transpose_a ? key.m : key.k, p.ldb = key.transpose_b ? key.k : key.n, p.ldc = key.n;
  p.a = a.get(), p.b = b.get(), p.c = c.get();
  p.bias = has_bias ? bias.get() : nullptr;
  p.aux = has_aux ? aux.get() : nullptr;

  const auto suggested = SuggestedAlgorithms(p, limit);
  const Event begin, end;
  const auto time = [&](size_t i, int products) {
    begin.Record(context);
    for (int product = 0; product < products; ++product) MultiplyWith(context, p, suggested[i].algo);
    end.Record(context);
    return end.SecondsSince(begin) / products;
  };
  std::vector<MatMulCandidate> candidates;
  for (size_t i = 0; i < suggested.size(); ++i) {
    MatMulCandidate candidate;
    std::copy_n(suggested[i].algo.data, candidate.algorithm.words.size(), candidate.algorithm.words.begin());
    candidate.workspace_bytes = static_cast<int64_t>(suggested[i].workspaceSize);
    candidate.description = Describe(suggested[i].algo);
    MultiplyWith(context, p, suggested[i].algo);  // loads its code
    candidate.seconds = time(i, 1);
    candidates.push_back(candidate);
  }
  // Then in rounds, so that a clock that sinks as the device warms up is not held against those that come late. Only
  // those that may yet be the fastest: training waits for this.
  constexpr int kRounds = 3, kMostProducts = 5;
  constexpr double kEnough = 1e-3, kHopeless = 1.2;  // seconds that a measurement takes; times the fastest
  double fastest = HUGE_VAL;
  for (const MatMulCandidate& candidate : candidates) fastest = std::min(fastest, candidate.seconds);
  const int products = std::clamp(static_cast<int>(kEnough / fastest), 1, kMostProducts);
  std::vector<size_t> hopeful;
  for (size_t i = 0; i < candidates.size(); ++i)
    if (candidates[i].seconds <= kHopeless * fastest) hopeful.push_back(i);
  for (int round = 0; round < kRounds; ++round)
    for (size_t i : hopeful) {
      const double seconds = time(i, products);
      candidates[i].seconds = round == 0 ? seconds : std::min(candidates[i].seconds, seconds);
    }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const auto& x, const auto& y) { return x.seconds < y.seconds; });
  CheckCuda(cudaStreamSynchronize(Stream(context)), "cudaStreamSynchronize");
  return candidates;
}

}  // namespace ds::cuda
