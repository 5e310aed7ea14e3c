// What ds-bench times: the products, attentions and rows of numbers that a model's training has.
#pragma once

#include <string>
#include <vector>

#include "kernels/attention.h"
#include "kernels/matmul_choice.h"
#include "runtime/job/job_spec.h"
#include "runtime/model/segment_spec.h"

namespace ds {

struct BenchProduct {
  std::string what;  ///< "qkv forward"
  MatMulKey key;
};

struct BenchAttention {
  DType dtype = DType::f32;
  AttentionShape shape;
};

struct BenchWork {
  std::string title;  ///< "gpt2-124m, 4 x 1024 tokens, bf16"
  ModelConfig model;  ///< whose rows are normalised, activated, ...
  DType compute = DType::f32;
  MicroBatchShape shape;
  bool fp8 = false;                    ///< of a job with training.fp8
  std::vector<BenchProduct> products;  ///< each key once
  std::vector<BenchAttention> attention;
};

/// The matrix products of one micro-batch, each kind of layer once: forward, backward-input and backward-weight of the
/// attention's projections, the MLP's and the head, as the segments compute them. fp8: training.fp8, of which CPUs have
/// no products of their own: theirs are those of bf16.
std::vector<BenchProduct> ProductsOf(const ModelConfig& model, DType compute, MicroBatchShape shape, DeviceKind device,
                                     bool fp8 = false);

/// Adds the products that a plan of the job on GPUs multiplies and that the work does not have: fused with what follows
/// them, or adding to gradients. They matter on GPUs alone, whose library has algorithms to choose from.
void AddPlan(BenchWork& work, const JobSpec& spec, int workers);

/// The work of a job: its model, precision, micro-batch and sequence length.
BenchWork WorkOf(const JobSpec& spec, DeviceKind device);

/// The work of a preset (presets.h): on GPUs in bf16, 4 samples of 1,024 tokens; on CPUs in fp32, one of 256; fewer
/// where the model has fewer positions. Throws UsageError that names the presets where there is none of that name.
BenchWork WorkOfPreset(const std::string& name, DeviceKind device);

/// A job of one worker that has this work of a preset.
JobSpec SpecOfPreset(const std::string& name, const BenchWork& work);

inline constexpr const char* kDefaultPreset = "gpt2-124m";

/// What is timed where nobody says what: square products, of 8,192 in bf16 and 4,096 in bf16, fp32 and fp64 on GPUs, of
/// 1,024 in fp32 and bf16 and 512 in fp64 on CPUs; the work of gpt2-124m; and attention of other lengths and head
/// sizes.
BenchWork DefaultWork(DeviceKind device);

/// "m x n x k bf16": of a product.
std::string ShapeText(const MatMulKey& key);
double Flops(const MatMulKey& key);

}  // namespace ds
