// Loops over OpenMP threads whose results cannot depend on how many there are. Internal to the CPU kernels.
//
// Callers cut work into blocks by a rule that looks at shapes alone; a block is computed by one thread in one order.
// With one thread there is no parallel region at all: in tests many ranks live as threads of one process.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>

#include "kernels/aligned_memory.h"
#include "kernels/context.h"

namespace ds::detail {

/// Keeps the first exception of a parallel region, which none may leave.
class FirstException {
 public:
  template <class Body>
  void Guard(const Body& body) noexcept {
    try {
      body();
    } catch (...) {
#pragma omp critical(ds_first_exception)
      if (!first_) first_ = std::current_exception();
    }
  }
  void Rethrow() const {
    if (first_) std::rethrow_exception(first_);
  }

 private:
  std::exception_ptr first_;
};

/// body(i) for i in [0, count); a thread takes a contiguous range.
template <class Body>
void ParallelFor(const KernelContext& context, int64_t count, const Body& body) {
  const int threads = static_cast<int>(std::min<int64_t>(context.threads, count));
  if (threads <= 1) {
    for (int64_t i = 0; i < count; ++i) body(i);
    return;
  }
  FirstException exception;
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t i = 0; i < count; ++i) exception.Guard([&] { body(i); });
  exception.Rethrow();
}

/// body(i, scratch) for i in [0, count), dealt out one by one to whoever is free: for items of unequal cost. scratch:
/// `bytes` bytes of the thread's own, aligned to 64, with whatever the thread's last item left there.
template <class Body>
void ParallelForWithScratch(const KernelContext& context, int64_t count, int64_t bytes, const Body& body) {
  const int threads = static_cast<int>(std::min<int64_t>(context.threads, count));
  if (threads <= 1) {
    const AlignedMemory scratch = AllocateAligned(bytes);
    for (int64_t i = 0; i < count; ++i) body(i, scratch.get());
    return;
  }
  FirstException exception;
#pragma omp parallel num_threads(threads)
  {
    AlignedMemory scratch;
    exception.Guard([&] { scratch = AllocateAligned(bytes); });
#pragma omp for schedule(dynamic, 1)
    for (int64_t i = 0; i < count; ++i)
      if (scratch) exception.Guard([&] { body(i, scratch.get()); });
  }
  exception.Rethrow();
}

/// body(begin, end) for consecutive blocks of `block` of the `total` items.
template <class Body>
void ParallelBlocks(const KernelContext& context, int64_t total, int64_t block, const Body& body) {
  ParallelFor(context, (total + block - 1) / block,
              [&](int64_t i) { body(i * block, std::min(total, (i + 1) * block)); });
}

constexpr int64_t kRowsPerBlock = 16;        ///< rows a block of kernels whose rows are independent
constexpr int64_t kElementsPerBlock = 8192;  ///< the same for elementwise kernels
constexpr int64_t kColumnsPerSlice = 64;     ///< columns that one thread owns where a kernel sums over rows

}  // namespace ds::detail
