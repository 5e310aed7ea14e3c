// A whole model as plain loops over segments: no plan, no executor, one rank. f32 or f64.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/segments/segment.h"

namespace ds::test {

class Model {
 public:
  /// One parameter. Memory is the model's; padding of the vocabulary included.
  struct Parameter {
    ParamSpec spec;
    Tensor value;
    std::vector<Tensor> gradients;  ///< one a segment that uses it: two of a tied table
    int64_t real_numel() const;     ///< without padding
  };

  /// end_of_document: attention stays within documents, which this token ends; -1: it does not.
  Model(const ModelConfig& config, DType compute, MicroBatchShape shape, int32_t end_of_document = -1);

  std::vector<Parameter>& parameters() { return parameters_; }

  /// Mean loss of a batch, whose samples have T + 1 tokens each. Keeps what Backward needs.
  double Forward(const std::vector<double>& tokens);
  /// Overwrites every gradient with that of the mean loss.
  void Backward();
  /// [B * T, vocabulary], of the last Forward.
  std::vector<double> Logits() const;

 private:
  struct Stage {
    SegmentSpec spec;
    std::unique_ptr<Segment> segment;
    std::vector<size_t> params, slots;  // in parameters_, and which of its gradients this segment writes
    std::vector<Tensor> saved, carried;
    Tensor output;
  };

  Tensor Allocate(DType dtype, Shape shape);
  size_t AddParameter(const ParamSpec& spec);
  SegmentIo Io(Stage& stage, Tensor x);

  SegmentOptions options_;
  StepContext step_;
  std::vector<std::vector<unsigned char>> memory_;
  std::vector<Parameter> parameters_;
  std::vector<Stage> stages_;
  Tensor tokens_, targets_, first_key_, scratch_, dy_, dx_;
  int32_t end_of_document_;
  double loss_sum_ = 0;
};

/// Element i of an f32 or f64 tensor.
double ReadElement(const Tensor& t, int64_t i);
void WriteElement(const Tensor& t, int64_t i, double value);

}  // namespace ds::test
