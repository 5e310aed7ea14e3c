// Graphs of cuDNN operations and plans that run them, over cuDNN's backend interface in C. Internal to the GPU kernels.
//
// A graph is written down operation by operation; cuDNN then finds an engine that computes it, which for some patterns
// (attention, for one) is a single fused kernel. Tensors between operations are virtual: they may never exist.
#pragma once

#include <cudnn_backend.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <vector>

namespace ds::cuda {

/// A call that cuDNN refused, and what it says about it.
class CudnnError : public std::runtime_error {
 public:
  CudnnError(const char* call, cudnnStatus_t status);
};

/// Throws CudnnError unless status is success.
void CheckCudnn(cudnnStatus_t status, const char* call);

/// The calling thread's handle for the current device, set to `stream` (a cudaStream_t).
cudnnHandle_t CudnnHandle(void* stream);

/// An object of cuDNN's backend: attributes are set, then it is finalised.
class CudnnDescriptor {
 public:
  explicit CudnnDescriptor(cudnnBackendDescriptorType_t type);

  cudnnBackendDescriptor_t get() const { return descriptor_.get(); }
  void Set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count, const void* values);
  void Set(cudnnBackendAttributeName_t name, const CudnnDescriptor& value);
  void Finalize();

 private:
  struct Destroy {
    void operator()(void* descriptor) const { cudnnBackendDestroyDescriptor(descriptor); }
  };
  std::unique_ptr<void, Destroy> descriptor_;
};

/// A graph with the engine that computes it.
class CudnnPlan {
 public:
  int64_t workspace_bytes() const { return workspace_bytes_; }
  /// Enqueues the graph on the handle's stream. addresses: of the graph's tensors and scalars in the order of their
  /// creation; scalars are in host memory.
  void Run(cudnnHandle_t handle, const std::vector<void*>& addresses, void* workspace) const;

 private:
  friend class CudnnGraph;
  CudnnPlan(CudnnDescriptor plan, std::vector<int64_t> ids);

  CudnnDescriptor plan_;
  std::vector<int64_t> ids_;
  int64_t workspace_bytes_ = 0;
};

/// The operations of a graph over tensors of four dimensions. Sums are in fp32.
class CudnnGraph {
 public:
  using Sizes = std::array<int64_t, 4>;
  /// A tensor; valid as long as its graph.
  using Node = const CudnnDescriptor*;

  /// Memory of the caller, aligned to 16 bytes; strides in elements.
  Node Tensor(cudnnDataType_t type, const Sizes& sizes, const Sizes& strides);
  /// An fp32 number that is given when a plan runs.
  Node Scalar();

  // The results of operations: virtual and dense unless `into` names a tensor of that type and those sizes.

  /// The matrix product a b. Where one has fewer heads (dimension 1) than the other, each serves a group.
  Node MatMul(Node a, Node b, cudnnDataType_t type, const Sizes& sizes, Node into = nullptr);
  /// mode(x, b), element by element; b is null where mode takes one operand, and repeated where its size is 1. `select`
  /// chooses between the two where mode is BINARY_SELECT.
  Node Pointwise(cudnnPointwiseMode_t mode, Node x, Node b, cudnnDataType_t type, const Sizes& sizes,
                 Node into = nullptr, Node select = nullptr);
  /// The index along an axis of every element of x, i32.
  Node Index(Node x, int64_t axis, const Sizes& sizes);
  /// Over the dimensions in which x is larger than `sizes`; fp32.
  Node Reduce(cudnnReduceTensorOp_t operation, Node x, const Sizes& sizes, Node into = nullptr);
  /// x's elements with other sizes and strides.
  Node Reshape(Node x, cudnnDataType_t type, const Sizes& sizes, const Sizes& strides);

  /// The first plan of cuDNN's heuristics that needs at most `workspace_bytes` and, if asked, gives the same bits in
  /// every run. Nothing when cuDNN has none. Throws CudnnError when it does not know the pattern at all.
  std::optional<CudnnPlan> Plan(cudnnHandle_t handle, int64_t workspace_bytes, bool deterministic);

 private:
  Node Add(cudnnDataType_t type, const Sizes& sizes, const Sizes& strides, bool is_virtual, bool is_scalar);
  Node AddVirtual(cudnnDataType_t type, const Sizes& sizes);
  Node AddPointwise(CudnnDescriptor setting, Node x, Node b, Node y, Node select);
  void AddOperation(CudnnDescriptor operation);

  std::vector<std::unique_ptr<CudnnDescriptor>> tensors_;
  std::vector<CudnnDescriptor> settings_, operations_;
  std::vector<int64_t> ids_;  ///< of tensors and scalars of the caller
};

}  // namespace ds::cuda
