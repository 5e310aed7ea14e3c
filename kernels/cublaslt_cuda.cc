#include "kernels/cublaslt.h"

#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <tuple>

#include "kernels/check.h"
#include "kernels/cuda_check.h"
#include "kernels/workspace.h"

namespace ds::cuda {
namespace {

cudaDataType_t LtType(DType t) {
  switch (t) {
    case DType::f64:
      return CUDA_R_64F;
    case DType::bf16:
      return CUDA_R_16BF;
    case DType::f16:
      return CUDA_R_16F;
    case DType::f8_e4m3:
      return CUDA_R_8F_E4M3;
    case DType::f8_e5m2:
      return CUDA_R_8F_E5M2;
    default:
      return CUDA_R_32F;
  }
}

cublasLtEpilogue_t LtEpilogue(MatMulEpilogue epilogue) {
  switch (epilogue) {
    case MatMulEpilogue::bias:
      return CUBLASLT_EPILOGUE_BIAS;
    case MatMulEpilogue::gelu:
      return CUBLASLT_EPILOGUE_GELU_AUX;
    case MatMulEpilogue::bias_gelu:
      return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    case MatMulEpilogue::gelu_backward:
      return CUBLASLT_EPILOGUE_DGELU;
    default:
      return CUBLASLT_EPILOGUE_DEFAULT;
  }
}

constexpr uint32_t kAlignment = 16;  // what algorithms ask for at most: more would make bits depend on arena offsets

/// The largest power of two, up to 16, that the address is a multiple of.
uint32_t AlignmentOf(const void* p) {
  const auto address = reinterpret_cast<uintptr_t>(p) | kAlignment;
  return static_cast<uint32_t>(address & -address);
}

int CurrentDevice() {
  int device = 0;
  CheckCuda(cudaGetDevice(&device), "cudaGetDevice");
  return device;
}

template <class Value>
void Set(cublasLtMatmulDescOpaque_t& description, cublasLtMatmulDescAttributes_t attribute, const Value& value) {
  CheckLt(cublasLtMatmulDescSetAttribute(&description, attribute, &value, sizeof(value)),
          "cublasLtMatmulDescSetAttribute");
}

template <class Value>
void Set(cublasLtMatmulPreferenceOpaque_t& preference, cublasLtMatmulPreferenceAttributes_t attribute,
         const Value& value) {
  CheckLt(cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof(value)),
          "cublasLtMatmulPreferenceSetAttribute");
}

/// A product as the library describes it. The library's matrices are column-major: a row-major matrix is its transpose
/// there, so it computes c^T = op(b)^T op(a)^T, with b as its first operand.
struct Description {
  cublasLtMatmulDescOpaque_t operation;
  cublasLtMatrixLayoutOpaque_t first, second, result;

  explicit Description(const LtProduct& p) {
    const bool wide = p.ab == DType::f64;
    // CUBLAS_COMPUTE_32F: fp32 stays fp32, without TF32.
    CheckLt(cublasLtMatmulDescInit(&operation, wide ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                   wide ? CUDA_R_64F : CUDA_R_32F),
            "cublasLtMatmulDescInit");
    Set(operation, CUBLASLT_MATMUL_DESC_TRANSA, p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    Set(operation, CUBLASLT_MATMUL_DESC_TRANSB, p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    Set(operation, CUBLASLT_MATMUL_DESC_EPILOGUE, LtEpilogue(p.epilogue));
    if (p.bias) {
      Set(operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
      Set(operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, LtType(p.c_type));
    }
    if (p.aux) {
      Set(operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, p.aux);
      Set(operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p.n);
      Set(operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, LtType(p.c_type));
    }
    if (IsFp8(p.ab)) {
      // The tensor cores add up in fewer bits than fp32 unless told to move sums to full fp32 now and then: for what is
      // fed forward that is precise enough, and faster.
      Set(operation, CUBLASLT_MATMUL_DESC_FAST_ACCUM, static_cast<int8_t>(p.ab == DType::f8_e4m3));
      if (p.b_scale) Set(operation, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, p.b_scale);
      if (p.a_scale) Set(operation, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, p.a_scale);
    }
    SetLayout(first, TypeOfB(p.ab), p.transpose_b ? p.k : p.n, p.transpose_b ? p.n : p.k, p.ldb);
    SetLayout(second, p.ab, p.transpose_a ? p.m : p.k, p.transpose_a ? p.k : p.m, p.lda);
    SetLayout(result, p.c_type, p.n, p.m, p.ldc);
  }

  static void SetLayout(cublasLtMatrixLayoutOpaque_t& layout, DType type, int64_t rows, int64_t columns, int64_t ld) {
    CheckLt(cublasLtMatrixLayoutInit(&layout, LtType(type), static_cast<uint64_t>(rows), static_cast<uint64_t>(columns),
                                     ld),
            "cublasLtMatrixLayoutInit");
  }
};

/// One handle a device, made when it is first asked for and kept until the process ends.
cublasLtHandle_t Handle(int device) {
  static std::mutex mutex;
  static auto& handles = *new std::map<int, cublasLtHandle_t>;  // never destroyed: at exit CUDA may be gone before it
  const std::lock_guard lock(mutex);
  const auto [at, is_new] = handles.try_emplace(device, nullptr);
  if (is_new) {
    const cublasStatus_t status = cublasLtCreate(&at->second);
    if (status != CUBLAS_STATUS_SUCCESS) handles.erase(at);
    CheckLt(status, "cublasLtCreate");
  }
  return at->second;
}

bool IsDense(const LtProduct& p) {
  return p.lda == (p.transpose_a ? p.m : p.k) && p.ldb == (p.transpose_b ? p.k : p.n) && p.ldc == p.n;
}

/// Everything that the choice of an algorithm depends on.
using Kind = std::tuple<int, MatMulKey, std::array<int64_t, 3>, std::array<uint32_t, 5>>;

struct Algorithms {
  std::mutex mutex;
  std::map<Kind, std::optional<cublasLtMatmulAlgo_t>> known;
  MatMulChoices choices;
};

Algorithms& All() {
  static auto& all = *new Algorithms;
  return all;
}

/// The algorithm of the table of choices, checked against p.
std::optional<cublasLtMatmulAlgo_t> ChosenAlgorithm(const char* kernel, const LtProduct& p,
                                                    const MatMulChoices& choices) {
  if (choices.empty() || !IsDense(p)) return std::nullopt;
  for (const void* address : {p.a, p.b, static_cast<const void*>(p.c), p.bias, static_cast<const void*>(p.aux)})
    if (AlignmentOf(address) < kAlignment) return std::nullopt;
  const auto choice = choices.find(KeyOf(p));
  if (choice == choices.end()) return std::nullopt;
  cublasLtMatmulAlgo_t algorithm;
  std::copy(choice->second.words.begin(), choice->second.words.end(), algorithm.data);
  Description d(p);
  cublasLtMatmulHeuristicResult_t checked{};
  const cublasStatus_t status = cublasLtMatmulAlgoCheck(Handle(CurrentDevice()), &d.operation, &d.first, &d.second,
                                                        &d.result, &d.result, &algorithm, &checked);
  if (status != CUBLAS_STATUS_SUCCESS || checked.workspaceSize > static_cast<size_t>(MatMulWorkspaceBytes()))
    throw std::runtime_error(std::string(kernel) +
                             ": the chosen algorithm for a product of m = " + std::to_string(p.m) +
                             ", n = " + std::to_string(p.n) + ", k = " + std::to_string(p.k) + " in " + NameOf(p.ab) +
                             " is not one that this library runs on this device: " + cublasLtGetStatusString(status) +
                             "; measure the machine again");
  return algorithm;
}

std::optional<cublasLtMatmulAlgo_t> FirstSuggestion(const LtProduct& p) {
  const auto suggested = SuggestedAlgorithms(p, 1);
  if (suggested.empty()) return std::nullopt;
  return suggested.front().algo;
}

}  // namespace

void CheckLt(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw std::runtime_error(std::string(call) + ": " + cublasLtGetStatusString(status) + " (" +
                             cublasLtGetStatusName(status) + ")");
}

LtProduct ProductOf(const Tensor& a, const Tensor& b, const Tensor& c, const MatMulOptions& options) {
  LtProduct p;
  p.ab = a.dtype, p.c_type = c.dtype;
  p.transpose_a = options.transpose_a, p.transpose_b = options.transpose_b;
  p.accumulate = options.accumulate, p.alpha = options.alpha;
  p.m = detail::Rows(c), p.n = detail::Columns(c);
  p.k = options.transpose_a ? detail::Rows(a) : detail::Columns(a);
  p.lda = detail::Columns(a), p.ldb = detail::Columns(b), p.ldc = detail::Columns(c);
  p.a = a.data, p.b = b.data, p.c = c.data;
  return p;
}

MatMulKey KeyOf(const LtProduct& p) {
  return {p.m, p.n, p.k, p.ab, p.c_type, p.transpose_a, p.transpose_b, p.accumulate, p.epilogue};
}

std::vector<cublasLtMatmulHeuristicResult_t> SuggestedAlgorithms(const LtProduct& p, int limit) {
  cublasLtMatmulPreferenceOpaque_t preference;
  CheckLt(cublasLtMatmulPreferenceInit(&preference), "cublasLtMatmulPreferenceInit");
  Set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(MatMulWorkspaceBytes()));
  // Not CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE, which would round partial sums to 16 bits, nor ..._INPLACE.
  Set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  Set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, AlignmentOf(p.b));
  Set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, AlignmentOf(p.a));
  Set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, AlignmentOf(p.c));
  Set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, AlignmentOf(p.c));
  Description d(p);
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(limit));
  int found = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(Handle(CurrentDevice()), &d.operation, &d.first, &d.second, &d.result, &d.result,
                                     &preference, limit, results.data(), &found);
  // What the library cannot do it says in either way.
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) return {};
  CheckLt(status, "cublasLtMatmulAlgoGetHeuristic");
  results.resize(static_cast<size_t>(found));
  std::erase_if(results, [](const auto& result) { return result.state != CUBLAS_STATUS_SUCCESS; });
  return results;
}

void MultiplyWith(const KernelContext& context, const LtProduct& p, const cublasLtMatmulAlgo_t& algorithm) {
  void* workspace = Workspace<void>(context, "MatMul", MatMulWorkspaceBytes());
  const double wide[] = {p.alpha, p.accumulate ? 1.0 : 0.0};
  const float narrow[] = {p.alpha, p.accumulate ? 1.0f : 0.0f};
  const bool is_wide = p.ab == DType::f64;
  const void* alpha = is_wide ? static_cast<const void*>(&wide[0]) : &narrow[0];
  const void* beta = is_wide ? static_cast<const void*>(&wide[1]) : &narrow[1];
  Description d(p);
  CheckLt(cublasLtMatmul(Handle(CurrentDevice()), &d.operation, alpha, p.b, &d.first, p.a, &d.second, beta,
                         p.added ? p.added : p.c, &d.result, p.c, &d.result, &algorithm, workspace,
                         static_cast<size_t>(MatMulWorkspaceBytes()), Stream(context)),
          "cublasLtMatmul");
}

bool MultiplyWithLt(const KernelContext& context, const char* kernel, const LtProduct& p) {
  const Kind kind{CurrentDevice(),
                  KeyOf(p),
                  {p.lda, p.ldb, p.ldc},
                  {AlignmentOf(p.a), AlignmentOf(p.b), AlignmentOf(p.c), AlignmentOf(p.bias), AlignmentOf(p.aux)}};
  std::optional<cublasLtMatmulAlgo_t> algorithm;
  {
    Algorithms& all = All();
    const std::lock_guard lock(all.mutex);
    auto at = all.known.find(kind);
    if (at == all.known.end()) {
      algorithm = ChosenAlgorithm(kernel, p, all.choices);
      if (!algorithm) algorithm = FirstSuggestion(p);
      at = all.known.emplace(kind, algorithm).first;
    }
    algorithm = at->second;
  }
  if (!algorithm) return false;
  MultiplyWith(context, p, *algorithm);
  return true;
}

int64_t MatMulLibraryVersion() { return static_cast<int64_t>(cublasLtGetVersion()); }

void SetMatMulChoices(int64_t, MatMulChoices choices) {
  Algorithms& all = All();
  const std::lock_guard lock(all.mutex);
  all.known.clear();
  all.choices = std::move(choices);
}

}  // namespace ds::cuda
