// A tensor is a view: it never owns memory. Arenas own memory (runtime/exec, runtime/state).
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>

#include "kernels/dtype.h"

namespace ds {

enum class DeviceKind : uint8_t { cpu, cuda };

/// Where a tensor's bytes are.
struct Device {
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;
  bool operator==(const Device&) const = default;
};

/// Extents of up to four dimensions, outermost first. Tensors are dense and row-major.
class Shape {
 public:
  static constexpr int kMaxRank = 4;
  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) {
    if (dims.size() > kMaxRank) throw std::invalid_argument("a shape has at most four dimensions");
    for (int64_t d : dims) dims_[rank_++] = d;
  }
  int rank() const { return rank_; }
  int64_t operator[](int i) const { return dims_[i]; }
  int64_t numel() const {
    int64_t n = 1;
    for (int i = 0; i < rank_; ++i) n *= dims_[i];
    return n;
  }
  bool operator==(const Shape&) const = default;
  std::string str() const {  ///< "[2, 3]"
    std::string s = "[";
    for (int i = 0; i < rank_; ++i) s += (i ? ", " : "") + std::to_string(dims_[i]);
    return s + "]";
  }

 private:
  std::array<int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

/// A kernel that asks for [N, D] takes a tensor of any rank whose last dimension is D and reads it as [product of the
/// leading dimensions, D].
struct Tensor {
  void* data = nullptr;
  DType dtype = DType::f32;
  Shape shape;
  Device device;

  Tensor() = default;
  Tensor(void* d, DType t, Shape s, Device dev = {}) : data(d), dtype(t), shape(s), device(dev) {}
  /// A view of typed host memory.
  template <class T>
  static Tensor Of(T* d, Shape s) {
    return Tensor(const_cast<std::remove_const_t<T>*>(d), DTypeOf<std::remove_const_t<T>>::value, s);
  }

  explicit operator bool() const { return data != nullptr; }
  int64_t numel() const { return shape.numel(); }
  int64_t bytes() const { return numel() * static_cast<int64_t>(SizeOf(dtype)); }

  /// The elements, as T. Throws std::invalid_argument when T is not the tensor's dtype.
  template <class T>
  T* as() const {
    if (DTypeOf<std::remove_const_t<T>>::value != dtype)
      throw std::invalid_argument(std::string("tensor of ") + NameOf(dtype) + " read as " +
                                  NameOf(DTypeOf<std::remove_const_t<T>>::value));
    return static_cast<T*>(data);
  }

  /// Same bytes, another shape of as many elements.
  Tensor View(Shape s) const {
    if (s.numel() != numel()) throw std::invalid_argument("view " + s.str() + " of a tensor " + shape.str());
    return Tensor(data, dtype, s, device);
  }
  /// Elements [begin, begin + count) of the flattened tensor, one-dimensional.
  Tensor Flat(int64_t begin, int64_t count) const {
    if (begin < 0 || count < 0 || begin + count > numel())
      throw std::invalid_argument("elements [" + std::to_string(begin) + ", +" + std::to_string(count) + ") of " +
                                  shape.str());
    return Tensor(static_cast<char*>(data) + begin * static_cast<int64_t>(SizeOf(dtype)), dtype, Shape{count}, device);
  }
  Tensor Flat() const { return Tensor(data, dtype, Shape{numel()}, device); }
};

}  // namespace ds
