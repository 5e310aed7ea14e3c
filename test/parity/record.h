// What test/data/make_parity.py recorded of PyTorch and Transformers.
#pragma once

#include <string>
#include <vector>

#include "runtime/checkpoint/safetensors.h"
#include "runtime/job/job_spec.h"

namespace ds::test {

struct AdamWSettings {
  double lr = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0, clip = 0;
};

class Record {
 public:
  /// test/data/parity_NAME.safetensors
  explicit Record(const std::string& name);

  const ModelConfig& model() const { return model_; }
  const AdamWSettings& optimizer() const { return optimizer_; }
  int64_t steps() const { return Dimension("tokens", 0); }
  int64_t batch() const { return Dimension("tokens", 1); }
  int64_t tokens() const { return Dimension("tokens", 2) - 1; }

  /// Elements of a tensor of the file, of any of its dtypes.
  std::vector<double> Read(const std::string& name) const;
  /// How many parameters the file has.
  int64_t ParameterCount() const;

 private:
  int64_t Dimension(const std::string& name, int i) const { return file_.At(name).shape[i]; }

  SafetensorsFile file_;
  ModelConfig model_;
  AdamWSettings optimizer_;
};

}  // namespace ds::test
