// What the kernel tests share: arrays of any dtype, comparison with fp64, and the promise that threads change no bit.
#pragma once

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/context.h"
#include "kernels/tensor.h"
#include "test/catch.h"

namespace ds::test {

using Values = std::vector<double>;

/// A dtype of training and how far results in it may be from fp64, relative to the size of the result.
struct Precision {
  DType dtype;
  double tolerance;
};
inline const Precision kPrecisions[] = {
    {DType::f64, 1e-13}, {DType::f32, 2e-6}, {DType::bf16, 8e-3}, {DType::f16, 1e-3}};

inline DType StatisticsType(DType t) { return t == DType::f64 ? DType::f64 : DType::f32; }

/// Owns the memory of a tensor. New arrays are poisoned: every byte 0xff, which is NaN in every floating dtype.
class Array {
 public:
  Array() = default;
  Array(DType dtype, Shape shape)
      : dtype_(dtype), shape_(shape), bytes_(Tensor(nullptr, dtype, shape).bytes() + 64, 0xff) {}

  /// values, rounded to the dtype.
  static Array Of(DType dtype, Shape shape, const Values& values) {
    Array a(dtype, shape);
    REQUIRE(static_cast<int64_t>(values.size()) == shape.numel());
    for (size_t i = 0; i < values.size(); ++i) a.Set(i, values[i]);
    return a;
  }
  static Array OfInts(Shape shape, const std::vector<int32_t>& values) {
    Array a(DType::i32, shape);
    std::memcpy(a.data(), values.data(), values.size() * sizeof(int32_t));
    return a;
  }
  /// Normal numbers.
  static Array Random(DType dtype, Shape shape, uint32_t seed, double stddev = 1, double mean = 0) {
    std::mt19937 generator(seed);
    std::normal_distribution<double> normal(mean, stddev);
    Values values(static_cast<size_t>(shape.numel()));
    for (double& v : values) v = normal(generator);
    return Of(dtype, shape, values);
  }

  Tensor tensor() const { return Tensor(const_cast<uint8_t*>(data()), dtype_, shape_); }
  operator Tensor() const { return tensor(); }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  size_t size() const { return static_cast<size_t>(shape_.numel()); }
  uint8_t* data() { return bytes_.data(); }
  const uint8_t* data() const { return bytes_.data(); }

  double operator[](size_t i) const {
    switch (dtype_) {
      case DType::f64:
        return As<double>(i);
      case DType::f32:
        return As<float>(i);
      case DType::bf16:
        return static_cast<float>(As<bf16>(i));
      case DType::f16:
        return static_cast<float>(As<f16>(i));
      default:
        return As<int32_t>(i);
    }
  }
  void Set(size_t i, double v) {
    switch (dtype_) {
      case DType::f64:
        return Put(i, v);
      case DType::f32:
        return Put(i, static_cast<float>(v));
      case DType::bf16:
        return Put(i, bf16(static_cast<float>(v)));
      case DType::f16:
        return Put(i, f16(static_cast<float>(v)));
      default:
        return Put(i, static_cast<int32_t>(v));
    }
  }
  Values values() const {
    Values out(size());
    for (size_t i = 0; i < out.size(); ++i) out[i] = (*this)[i];
    return out;
  }
  /// The same values in another dtype.
  Array To(DType dtype) const { return Of(dtype, shape_, values()); }
  /// Same bits, and the guard bytes behind the array too.
  bool operator==(const Array& other) const { return bytes_ == other.bytes_; }
  /// Nothing was written behind the end.
  bool Intact() const {
    for (size_t i = bytes_.size() - 64; i < bytes_.size(); ++i)
      if (bytes_[i] != 0xff) return false;
    return true;
  }

 private:
  template <class T>
  T As(size_t i) const {
    T v;
    std::memcpy(&v, bytes_.data() + i * sizeof(T), sizeof(T));
    return v;
  }
  template <class T>
  void Put(size_t i, T v) {
    std::memcpy(bytes_.data() + i * sizeof(T), &v, sizeof(T));
  }

  DType dtype_ = DType::f32;
  Shape shape_;
  std::vector<uint8_t> bytes_;
};

/// Every element of got is within tolerance * (|want| + mean |want|) of want, plus its element of `also` where that is
/// given; NaN is not.
inline void CheckClose(const std::string& name, const Array& got, const Values& want, double tolerance,
                       const Values& also = {}) {
  INFO(name << " " << NameOf(got.dtype()) << " " << got.shape().str());
  REQUIRE(got.size() == want.size());
  REQUIRE((also.empty() || also.size() == want.size()));
  CHECK(got.Intact());
  double mean = 0;
  for (double w : want) mean += std::fabs(w) / static_cast<double>(want.size());
  size_t worst = want.size();
  double worst_ratio = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double bound = tolerance * (std::fabs(want[i]) + mean) + (also.empty() ? 0 : also[i]) + 1e-300;
    const double ratio = std::fabs(got[i] - want[i]) / bound;
    if (!(ratio <= 1) && !(ratio <= worst_ratio)) {
      worst = i;
      worst_ratio = std::isnan(ratio) ? HUGE_VAL : ratio;
    }
  }
  if (worst < want.size()) {
    INFO("element " << worst << ": got " << got[worst] << ", want " << want[worst]);
    CHECK(worst_ratio <= 1);
  } else {
    CHECK(worst_ratio <= 1);
  }
}

/// Runs `run(context)`, which returns freshly made outputs, with 1, 2, 3 and 5 threads; all must agree bit for bit.
template <class Run>
std::vector<Array> OnAnyThreads(const Run& run) {
  const std::vector<Array> one = run(KernelContext{1});
  for (int threads : {2, 3, 5}) {
    const std::vector<Array> many = run(KernelContext{threads});
    REQUIRE(many.size() == one.size());
    for (size_t i = 0; i < one.size(); ++i) {
      INFO("output " << i << " with " << threads << " threads");
      CHECK(many[i] == one[i]);
    }
  }
  return one;
}

/// d(loss)/dx by central differences in fp64; loss is a function of x.
template <class Loss>
Values CentralDifferences(Values x, const Loss& loss, double step = 1e-5) {
  Values gradient(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const double before = x[i];
    x[i] = before + step;
    const double up = loss(x);
    x[i] = before - step;
    const double down = loss(x);
    x[i] = before;
    gradient[i] = (up - down) / (2 * step);
  }
  return gradient;
}

/// sum_i a_i b_i: the loss whose gradient with respect to `a` is `b`.
inline double Dot(const Values& a, const Values& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

constexpr double kDifferenceTolerance = 1e-7;  ///< of central differences with the default step

}  // namespace ds::test
