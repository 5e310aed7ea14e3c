// The optimizer's step on the host, beside a stream that moves the same bytes and computes nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/context.h"
#include "runtime/state/host_memory.h"

namespace ds {

/// What a step of AdamW reads and writes beside master and moments.
struct HostOptimizerCase {
  std::string name;  ///< "bf16-gradient"
  std::string what;  ///< "bf16 gradient and copy"
  DType gradient = DType::f32;
  bool working = false;  ///< a working copy in bf16

  /// That a step must read and write of a parameter: both ways of master and two moments.
  int64_t BytesPerParameter() const { return static_cast<int64_t>(SizeOf(gradient)) + 24 + (working ? 2 : 0); }
};

/// fp32 training (28 bytes a parameter), a working copy in bf16 (30), and gradients in bf16 too (28), as they come over
/// a link.
const std::vector<HostOptimizerCase>& HostOptimizerCases();

/// Memory of so many parameters, in huge pages where the system has them, and what runs on it.
class HostOptimizer {
 public:
  /// Throws RuntimeError when there is not that much memory.
  HostOptimizer(int64_t parameters, int threads);

  int64_t parameters() const { return parameters_; }
  /// Of master, moments and an fp32 gradient.
  static constexpr int64_t kStateBytes = 16;

  /// A step of AdamW.
  void Step(const HostOptimizerCase& wanted);
  /// Reads and writes what Step does, a contiguous range a thread; values stay as they are, but the working copy's. The
  /// working copy is written past the caches when Step writes it so.
  void Stream(const HostOptimizerCase& wanted);

  /// Seconds of one run each, of `runs` in a row: `stream` or step.
  double Time(const HostOptimizerCase& wanted, bool stream, int runs);

 private:
  Tensor Array(int index, DType dtype) const;

  const int64_t parameters_;
  const KernelContext context_;
  HostMemory memory_;
};

struct HostOptimizerTiming {
  std::vector<double> step, stream;  ///< seconds of one run, a round each
};

/// The cases in turn, step and stream one after the other, for about `seconds`, at least one round and as a rule three:
/// others that want the machine meanwhile harm both alike. In the order of HostOptimizerCases.
std::vector<HostOptimizerTiming> TimeHostOptimizer(HostOptimizer& optimizer, double seconds);

namespace detail {

/// A stream over elements [begin, end) of five arrays, whose begins are aligned to 64 bytes as `begin` is; gradient:
/// of 4 or 2 bytes; working may be null. zero: 0, which the compiler must not know.
struct StreamArrays {
  const void* gradient = nullptr;
  int64_t gradient_bytes = 4;
  float *master = nullptr, *m = nullptr, *v = nullptr;
  uint16_t* working = nullptr;
  bool past_caches = false;  ///< of the working copy
  float zero = 0;
};
void StreamRange(const StreamArrays& arrays, int64_t begin, int64_t end);

}  // namespace detail
}  // namespace ds
