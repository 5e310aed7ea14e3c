#include "kernels/cudnn_graph.h"

#include <cudnn.h>

#include <algorithm>
#include <map>
#include <string>

#include "kernels/cuda_check.h"

namespace ds::cuda {
namespace {

CudnnGraph::Sizes DenseStrides(const CudnnGraph::Sizes& sizes) {
  return {sizes[1] * sizes[2] * sizes[3], sizes[2] * sizes[3], sizes[3], 1};
}

/// What cuDNN says about the calling thread's last error.
std::string LastError() {
  char text[512] = "";
  cudnnGetLastErrorString(text, sizeof(text));
  return text;
}

/// A thread's handles, one a device.
class Handles {
 public:
  ~Handles() {
    for (const auto& [device, handle] : handles_) cudnnDestroy(handle);
  }
  cudnnHandle_t Get() {
    int device = 0;
    CheckCuda(cudaGetDevice(&device), "cudaGetDevice");
    cudnnHandle_t& handle = handles_[device];
    if (!handle) CheckCudnn(cudnnCreate(&handle), "cudnnCreate");
    return handle;
  }

 private:
  std::map<int, cudnnHandle_t> handles_;
};

/// Gets the descriptors that an attribute holds; `into` says how many at most, and what they are.
int64_t GetDescriptors(const CudnnDescriptor& from, cudnnBackendAttributeName_t name,
                       std::vector<CudnnDescriptor>& into) {
  std::vector<cudnnBackendDescriptor_t> addresses;
  for (const CudnnDescriptor& descriptor : into) addresses.push_back(descriptor.get());
  int64_t count = 0;
  CheckCudnn(cudnnBackendGetAttribute(from.get(), name, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                      static_cast<int64_t>(addresses.size()), &count, addresses.data()),
             "cudnnBackendGetAttribute");
  return count;
}

/// Engines for a graph with their settings, cuDNN's first choice first.
std::vector<CudnnDescriptor> ConfigurationsOf(const CudnnDescriptor& graph) {
  const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
  CudnnDescriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics.Set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  heuristics.Set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  heuristics.Finalize();
  std::vector<CudnnDescriptor> configurations;
  const int64_t count = GetDescriptors(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, configurations);
  for (int64_t i = 0; i < count; ++i) configurations.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  GetDescriptors(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, configurations);
  return configurations;
}

/// Whether a configuration's engine may give other bits in another run.
bool MayVary(const CudnnDescriptor& configuration) {
  std::vector<CudnnDescriptor> engine;
  engine.emplace_back(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  GetDescriptors(configuration, CUDNN_ATTR_ENGINECFG_ENGINE, engine);
  cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
  int64_t count = 0;
  CheckCudnn(cudnnBackendGetAttribute(engine[0].get(), CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                      CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, notes),
             "cudnnBackendGetAttribute");
  return std::count(notes, notes + count, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) > 0;
}

}  // namespace

CudnnError::CudnnError(const char* call, cudnnStatus_t status)
    : std::runtime_error(std::string(call) + ": " + LastError() + " (" + cudnnGetErrorString(status) + ")") {}

void CheckCudnn(cudnnStatus_t status, const char* call) {
  if (status != CUDNN_STATUS_SUCCESS) throw CudnnError(call, status);
}

cudnnHandle_t CudnnHandle(void* stream) {
  thread_local Handles handles;
  const cudnnHandle_t handle = handles.Get();
  CheckCudnn(cudnnSetStream(handle, static_cast<cudaStream_t>(stream)), "cudnnSetStream");
  return handle;
}

CudnnDescriptor::CudnnDescriptor(cudnnBackendDescriptorType_t type) {
  cudnnBackendDescriptor_t descriptor = nullptr;
  CheckCudnn(cudnnBackendCreateDescriptor(type, &descriptor), "cudnnBackendCreateDescriptor");
  descriptor_.reset(descriptor);
}

void CudnnDescriptor::Set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                          const void* values) {
  CheckCudnn(cudnnBackendSetAttribute(get(), name, type, count, values), "cudnnBackendSetAttribute");
}

void CudnnDescriptor::Set(cudnnBackendAttributeName_t name, const CudnnDescriptor& value) {
  const cudnnBackendDescriptor_t descriptor = value.get();
  Set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &descriptor);
}

void CudnnDescriptor::Finalize() { CheckCudnn(cudnnBackendFinalize(get()), "cudnnBackendFinalize"); }

CudnnPlan::CudnnPlan(CudnnDescriptor plan, std::vector<int64_t> ids) : plan_(std::move(plan)), ids_(std::move(ids)) {
  CheckCudnn(cudnnBackendGetAttribute(plan_.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
                                      nullptr, &workspace_bytes_),
             "cudnnBackendGetAttribute");
}

void CudnnPlan::Run(cudnnHandle_t handle, const std::vector<void*>& addresses, void* workspace) const {
  CudnnDescriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.Set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, static_cast<int64_t>(ids_.size()), ids_.data());
  pack.Set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, static_cast<int64_t>(addresses.size()),
           addresses.data());
  pack.Set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
  pack.Finalize();
  CheckCudnn(cudnnBackendExecute(handle, plan_.get(), pack.get()), "cudnnBackendExecute");
}

CudnnGraph::Node CudnnGraph::Add(cudnnDataType_t type, const Sizes& sizes, const Sizes& strides, bool is_virtual,
                                 bool is_scalar) {
  const int64_t id = static_cast<int64_t>(tensors_.size()) + 1, alignment = 16;
  auto tensor = std::make_unique<CudnnDescriptor>(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  tensor->Set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
  tensor->Set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
  tensor->Set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, sizes.data());
  tensor->Set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides.data());
  tensor->Set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
  tensor->Set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
  tensor->Set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &is_scalar);
  tensor->Finalize();
  if (!is_virtual) ids_.push_back(id);
  tensors_.push_back(std::move(tensor));
  return tensors_.back().get();
}

CudnnGraph::Node CudnnGraph::Tensor(cudnnDataType_t type, const Sizes& sizes, const Sizes& strides) {
  return Add(type, sizes, strides, false, false);
}

CudnnGraph::Node CudnnGraph::Scalar() { return Add(CUDNN_DATA_FLOAT, {1, 1, 1, 1}, {1, 1, 1, 1}, false, true); }

CudnnGraph::Node CudnnGraph::AddVirtual(cudnnDataType_t type, const Sizes& sizes) {
  return Add(type, sizes, DenseStrides(sizes), true, false);
}

void CudnnGraph::AddOperation(CudnnDescriptor operation) {
  operation.Finalize();
  operations_.push_back(std::move(operation));
}

CudnnGraph::Node CudnnGraph::MatMul(Node a, Node b, cudnnDataType_t type, const Sizes& sizes, Node into) {
  const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  const Node c = into ? into : AddVirtual(type, sizes);
  CudnnDescriptor setting(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  setting.Set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
  setting.Finalize();
  CudnnDescriptor operation(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  operation.Set(CUDNN_ATTR_OPERATION_MATMUL_DESC, setting);
  operation.Set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, *a);
  operation.Set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, *b);
  operation.Set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, *c);
  AddOperation(std::move(operation));
  settings_.push_back(std::move(setting));
  return c;
}

CudnnGraph::Node CudnnGraph::AddPointwise(CudnnDescriptor setting, Node x, Node b, Node y, Node select) {
  setting.Finalize();
  CudnnDescriptor operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  operation.Set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, setting);
  operation.Set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, *x);
  if (b) operation.Set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *b);
  if (select) operation.Set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, *select);
  operation.Set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, *y);
  AddOperation(std::move(operation));
  settings_.push_back(std::move(setting));
  return y;
}

CudnnGraph::Node CudnnGraph::Pointwise(cudnnPointwiseMode_t mode, Node x, Node b, cudnnDataType_t type,
                                       const Sizes& sizes, Node into, Node select) {
  const cudnnDataType_t compute = type == CUDNN_DATA_BOOLEAN ? CUDNN_DATA_BOOLEAN : CUDNN_DATA_FLOAT;
  CudnnDescriptor setting(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  setting.Set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
  setting.Set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute);
  return AddPointwise(std::move(setting), x, b, into ? into : AddVirtual(type, sizes), select);
}

CudnnGraph::Node CudnnGraph::Index(Node x, int64_t axis, const Sizes& sizes) {
  const cudnnPointwiseMode_t mode = CUDNN_POINTWISE_GEN_INDEX;
  const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  CudnnDescriptor setting(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  setting.Set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
  setting.Set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute);
  setting.Set(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
  return AddPointwise(std::move(setting), x, nullptr, AddVirtual(CUDNN_DATA_INT32, sizes), nullptr);
}

CudnnGraph::Node CudnnGraph::Reduce(cudnnReduceTensorOp_t reduction, Node x, const Sizes& sizes, Node into) {
  const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  const Node y = into ? into : AddVirtual(CUDNN_DATA_FLOAT, sizes);
  CudnnDescriptor setting(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  setting.Set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &reduction);
  setting.Set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
  setting.Finalize();
  CudnnDescriptor operation(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  operation.Set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, setting);
  operation.Set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, *x);
  operation.Set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, *y);
  AddOperation(std::move(operation));
  settings_.push_back(std::move(setting));
  return y;
}

CudnnGraph::Node CudnnGraph::Reshape(Node x, cudnnDataType_t type, const Sizes& sizes, const Sizes& strides) {
  const Node y = Add(type, sizes, strides, true, false);
  CudnnDescriptor operation(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  operation.Set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, *x);
  operation.Set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, *y);
  AddOperation(std::move(operation));
  return y;
}

std::optional<CudnnPlan> CudnnGraph::Plan(cudnnHandle_t handle, int64_t workspace_bytes, bool deterministic) {
  CudnnDescriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  std::vector<cudnnBackendDescriptor_t> operations;
  for (const CudnnDescriptor& operation : operations_) operations.push_back(operation.get());
  graph.Set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
  graph.Set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<int64_t>(operations.size()),
            operations.data());
  graph.Finalize();
  for (const CudnnDescriptor& configuration : ConfigurationsOf(graph)) {
    if (deterministic && MayVary(configuration)) continue;
    CudnnDescriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    plan.Set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    plan.Set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
    // Heuristics propose; an engine may still refuse.
    if (cudnnBackendFinalize(plan.get()) != CUDNN_STATUS_SUCCESS) continue;
    CudnnPlan result(std::move(plan), ids_);
    if (result.workspace_bytes() <= workspace_bytes) return result;
  }
  return std::nullopt;
}

}  // namespace ds::cuda
