// Clang before version 15 knows _Float16 on x86 only where processors compute with it. Parsers need its size alone
// (kernels/dtype.h): test/fuzz/CMakeLists.txt includes this first and names _Float16 as this.
#pragma once

struct DsFloat16 {
  __fp16 value;
  DsFloat16() = default;
  explicit DsFloat16(float v) : value(v) {}
  explicit operator float() const { return value; }
};
#define _Float16 DsFloat16
