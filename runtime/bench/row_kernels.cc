#include "runtime/bench/row_kernels.h"

#include <algorithm>

#include "kernels/activation.h"
#include "kernels/cross_entropy.h"
#include "kernels/elementwise.h"
#include "kernels/fp8.h"
#include "kernels/layer_norm.h"
#include "kernels/optimizer.h"
#include "kernels/reduce.h"
#include "kernels/rms_norm.h"
#include "kernels/workspace.h"

namespace ds {
namespace {

/// Bytes of one tensor: more than a GPU's L2 (50 MB on an H200), and than a core's share of a CPU's L3.
int64_t TensorBytes(DeviceKind device) { return int64_t{device == DeviceKind::cuda ? 256 : 64} << 20; }

DType Wide(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

/// Rows of so many columns in one tensor of TensorBytes.
int64_t RowsFor(int64_t columns, DType dtype, DeviceKind device) {
  return std::max<int64_t>(TensorBytes(device) / (columns * static_cast<int64_t>(SizeOf(dtype))), 16);
}

struct Rows {
  int64_t rows = 0, columns = 0;
  DType dtype = DType::f32;
  Shape shape() const { return {rows, columns}; }
  std::string text() const { return std::to_string(rows) + " x " + std::to_string(columns) + " " + NameOf(dtype); }
  /// Of so many tensors of this shape.
  int64_t Bytes(int64_t tensors) const { return tensors * rows * columns * static_cast<int64_t>(SizeOf(dtype)); }
};

void AddLayerNorm(std::vector<RowKernel>& kernels, const Rows& r) {
  kernels.push_back(
      {"layer_norm forward", r.text(), r.Bytes(2), [r](BenchDevice& device, double seconds) {
         const BenchTensor x(device, r.dtype, r.shape()), y(device, r.dtype, r.shape());
         const BenchTensor weight(device, r.dtype, {r.columns}), bias(device, r.dtype, {r.columns});
         const BenchTensor mean(device, Wide(r.dtype), {r.rows}), rstd(device, Wide(r.dtype), {r.rows});
         return device.Time(seconds, [&] { LayerNormForward(device.context(), x, weight, bias, 1e-5, y, mean, rstd); })
             .seconds;
       }});
  kernels.push_back({"layer_norm backward-input", r.text(), r.Bytes(3), [r](BenchDevice& device, double seconds) {
                       const BenchTensor x(device, r.dtype, r.shape()), dy(device, r.dtype, r.shape());
                       const BenchTensor dx(device, r.dtype, r.shape()), weight(device, r.dtype, {r.columns});
                       const BenchTensor mean(device, Wide(r.dtype), {r.rows}), rstd(device, Wide(r.dtype), {r.rows});
                       return device
                           .Time(seconds,
                                 [&] { LayerNormBackwardInput(device.context(), dy, x, weight, mean, rstd, {}, dx); })
                           .seconds;
                     }});
  kernels.push_back(
      {"layer_norm backward-weight", r.text(), r.Bytes(2), [r](BenchDevice& device, double seconds) {
         const BenchTensor x(device, r.dtype, r.shape()), dy(device, r.dtype, r.shape());
         const DType wide = Wide(r.dtype);
         const BenchTensor mean(device, wide, {r.rows}), rstd(device, wide, {r.rows});
         const BenchTensor dweight(device, wide, {r.columns}), dbias(device, wide, {r.columns});
         return device
             .Time(seconds,
                   [&] { LayerNormBackwardWeight(device.context(), dy, x, mean, rstd, dweight, dbias, false); })
             .seconds;
       }});
}

void AddRmsNorm(std::vector<RowKernel>& kernels, const Rows& r) {
  kernels.push_back(
      {"rms_norm forward", r.text(), r.Bytes(2), [r](BenchDevice& device, double seconds) {
         const BenchTensor x(device, r.dtype, r.shape()), y(device, r.dtype, r.shape());
         const BenchTensor weight(device, r.dtype, {r.columns}), rstd(device, Wide(r.dtype), {r.rows});
         return device.Time(seconds, [&] { RmsNormForward(device.context(), x, weight, 1e-5, y, rstd); }).seconds;
       }});
  kernels.push_back({"rms_norm backward-input", r.text(), r.Bytes(3), [r](BenchDevice& device, double seconds) {
                       const BenchTensor x(device, r.dtype, r.shape()), dy(device, r.dtype, r.shape());
                       const BenchTensor dx(device, r.dtype, r.shape()), weight(device, r.dtype, {r.columns});
                       const BenchTensor rstd(device, Wide(r.dtype), {r.rows});
                       return device
                           .Time(seconds, [&] { RmsNormBackwardInput(device.context(), dy, x, weight, rstd, {}, dx); })
                           .seconds;
                     }});
  kernels.push_back(
      {"rms_norm backward-weight", r.text(), r.Bytes(2), [r](BenchDevice& device, double seconds) {
         const BenchTensor x(device, r.dtype, r.shape()), dy(device, r.dtype, r.shape());
         const BenchTensor rstd(device, Wide(r.dtype), {r.rows}), dweight(device, Wide(r.dtype), {r.columns});
         return device.Time(seconds, [&] { RmsNormBackwardWeight(device.context(), dy, x, rstd, dweight, false); })
             .seconds;
       }});
}

void AddGelu(std::vector<RowKernel>& kernels, const Rows& r, GeluKind kind) {
  kernels.push_back({"gelu forward", r.text(), r.Bytes(2), [r, kind](BenchDevice& device, double seconds) {
                       const BenchTensor x(device, r.dtype, r.shape()), y(device, r.dtype, r.shape());
                       return device.Time(seconds, [&] { GeluForward(device.context(), kind, x, y); }).seconds;
                     }});
  kernels.push_back({"gelu backward", r.text(), r.Bytes(3), [r, kind](BenchDevice& device, double seconds) {
                       const BenchTensor x(device, r.dtype, r.shape()), dy(device, r.dtype, r.shape());
                       const BenchTensor dx(device, r.dtype, r.shape());
                       return device.Time(seconds, [&] { GeluBackward(device.context(), kind, dy, x, dx); }).seconds;
                     }});
}

void AddSwiglu(std::vector<RowKernel>& kernels, const Rows& r) {
  const Shape both{r.rows, 2 * r.columns};
  kernels.push_back({"swiglu forward", r.text(), r.Bytes(3), [r, both](BenchDevice& device, double seconds) {
                       const BenchTensor gate_up(device, r.dtype, both), y(device, r.dtype, r.shape());
                       return device.Time(seconds, [&] { SwigluForward(device.context(), gate_up, y); }).seconds;
                     }});
  kernels.push_back(
      {"swiglu backward", r.text(), r.Bytes(5), [r, both](BenchDevice& device, double seconds) {
         const BenchTensor gate_up(device, r.dtype, both), dgate_up(device, r.dtype, both);
         const BenchTensor dy(device, r.dtype, r.shape());
         return device.Time(seconds, [&] { SwigluBackward(device.context(), dy, gate_up, dgate_up); }).seconds;
       }});
}

void AddCrossEntropy(std::vector<RowKernel>& kernels, const Rows& r, int64_t vocabulary) {
  kernels.push_back(
      {"cross_entropy and gradient", r.text(), r.Bytes(2), [r, vocabulary](BenchDevice& device, double seconds) {
         // In place, as the head computes it: from the second run on the logits are gradients.
         const BenchTensor logits(device, r.dtype, r.shape()), targets(device, DType::i32, {r.rows});
         const BenchTensor losses(device, Wide(r.dtype), {r.rows});
         FillTokens(device, targets, static_cast<int32_t>(vocabulary));
         return device
             .Time(seconds, [&] { CrossEntropy(device.context(), logits, targets, vocabulary, 1.0, losses, logits); })
             .seconds;
       }});
}

/// What training.fp8 does to an operand before each product: two readings, and a writing in 8 bits.
void AddQuantize(std::vector<RowKernel>& kernels, const Rows& r) {
  for (const bool transpose : {false, true})
    kernels.push_back(
        {transpose ? "quantise and transpose" : "quantise", r.text(), 5 * r.rows * r.columns,
         [r, transpose](BenchDevice& device, double seconds) {
           const BenchTensor x(device, r.dtype, r.shape()), inverse(device, DType::f32, {1});
           const BenchTensor codes(device, DType::f8_e4m3, transpose ? Shape{r.columns, r.rows} : r.shape());
           const BenchTensor largest(device, DType::i32, {1});
           return device.Time(seconds, [&] { QuantizeFp8(device.context(), x, transpose, codes, inverse, largest); })
               .seconds;
         }});
}

void AddAdam(std::vector<RowKernel>& kernels, int64_t n, DType compute) {
  // Reads gradient, master and both moments; writes all but the gradient, and the working copy.
  const int64_t bytes = n * (4 + 3 * 8 + static_cast<int64_t>(SizeOf(compute)));
  const std::string shape = std::to_string(n) + " " + NameOf(compute);
  kernels.push_back({"adamw step", shape, bytes, [n, compute](BenchDevice& device, double seconds) {
                       const BenchTensor gradient(device, DType::f32, {n}), master(device, DType::f32, {n});
                       const BenchTensor m(device, DType::f32, {n}), v(device, DType::f32, {n});
                       const BenchTensor working(device, compute, {n});
                       Fill(device.context(), v, 0.01);  // a square is not negative
                       const AdamScalars scalars = MakeAdamScalars(1e-4, 0.9, 0.999, 1e-8, 0.01, true, true, 10, 1.0);
                       return device
                           .Time(seconds, [&] { AdamStep(device.context(), scalars, gradient, master, m, v, working); })
                           .seconds;
                     }});
}

/// Columns of the MLP's first product, the widest that have a bias.
int64_t UpWidth(const ModelConfig& model) { return (model.activation == Activation::swiglu ? 2 : 1) * model.ffn; }

void AddBiasGradient(std::vector<RowKernel>& kernels, const Rows& r) {
  kernels.push_back({"bias gradient", r.text(), r.Bytes(1), [r](BenchDevice& device, double seconds) {
                       const BenchTensor dy(device, r.dtype, r.shape()), dbias(device, Wide(r.dtype), {r.columns});
                       return device.Time(seconds, [&] { BiasBackward(device.context(), dy, dbias, false); }).seconds;
                     }});
}

/// Gradients whose norm is taken: so many units of so many numbers, each with a sum of its own.
struct Units {
  int64_t count = 0, numel = 0;
};
/// One as large as a token table of 50,000 x 1,600, and a list as a model's.
std::vector<Units> UnitsOf(DeviceKind device) {
  if (device == DeviceKind::cuda) return {{1, 80'000'000}, {100, 5'000'000}};
  const int64_t numel = TensorBytes(device) / 4;
  return {{1, numel}, {64, numel / 64}};
}

void AddSumOfSquares(std::vector<RowKernel>& kernels, const Units& units) {
  const std::string shape = (units.count > 1 ? std::to_string(units.count) + " x " : "") + std::to_string(units.numel);
  kernels.push_back(
      {"sum of squares", shape + " f32", units.count * units.numel * 4, [units](BenchDevice& device, double seconds) {
         const BenchTensor sums(device, DType::f64, {units.count});
         std::vector<BenchTensor> gradients;
         std::vector<SquareTerm> terms;
         for (int64_t unit = 0; unit < units.count; ++unit) {
           gradients.emplace_back(device, DType::f32, Shape{units.numel});
           terms.push_back({gradients.back(), sums.tensor().Flat(unit, 1)});
         }
         return device.Time(seconds, [&] { AddSumsOfSquares(device.context(), terms); }).seconds;
       }});
}

}  // namespace

std::vector<RowKernel> RowKernelsOf(const BenchWork& work, DeviceKind device) {
  const ModelConfig& model = work.model;
  const auto rows = [&](int64_t columns) {
    return Rows{RowsFor(columns, work.compute, device), columns, work.compute};
  };
  std::vector<RowKernel> kernels;
  if (model.norm == Norm::layer_norm)
    AddLayerNorm(kernels, rows(model.hidden));
  else
    AddRmsNorm(kernels, rows(model.hidden));
  if (model.activation == Activation::swiglu)
    AddSwiglu(kernels, rows(model.ffn));
  else
    AddGelu(kernels, rows(model.ffn), model.activation == Activation::gelu ? GeluKind::exact : GeluKind::tanh);
  if (work.fp8 && device == DeviceKind::cuda && model.hidden % 16 == 0) {
    Rows r = rows(model.hidden);
    r.rows -= r.rows % 16;
    AddQuantize(kernels, r);
  }
  AddCrossEntropy(kernels, rows(model.padded_vocabulary()), model.vocabulary);
  if (model.bias)
    for (const int64_t columns : {model.hidden, UpWidth(model)}) AddBiasGradient(kernels, rows(columns));
  for (const Units& units : UnitsOf(device)) AddSumOfSquares(kernels, units);
  AddAdam(kernels, TensorBytes(device) / 4, work.compute);
  return kernels;
}

int64_t RowKernelWorkspace(const BenchWork& work) {
  const auto column_sums = [&](int64_t columns, int64_t sums) {
    return ColumnSumsWorkspaceBytes(RowsFor(columns, work.compute, DeviceKind::cuda), columns, sums, work.compute);
  };
  const ModelConfig& model = work.model;
  int64_t bytes = column_sums(model.hidden, model.norm == Norm::layer_norm ? 2 : 1);
  if (model.bias) bytes = std::max(bytes, column_sums(UpWidth(model), 1));
  for (const Units& units : UnitsOf(DeviceKind::cuda))
    bytes = std::max(bytes, units.count * SumOfSquaresWorkspaceBytes(units.numel));
  return bytes;
}

}  // namespace ds
