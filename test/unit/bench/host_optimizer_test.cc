// Promise: the stream that the host's optimizer is held against moves the bytes that a step moves, and changes nothing.
#include "runtime/bench/host_optimizer.h"

#include <bit>
#include <cstring>
#include <memory>

#include "test/catch.h"

namespace ds {
namespace {

constexpr int64_t kCount = 5000, kGuard = 32;

/// Numbers with 64 bytes before them that are poisoned, as those behind are.
template <class T>
class Numbers {
 public:
  explicit Numbers(float first) : memory_(new (std::align_val_t{64}) T[kCount + 2 * kGuard]) {
    std::memset(memory_.get(), 0xff, sizeof(T) * (kCount + 2 * kGuard));
    for (int64_t i = 0; first != 0 && i < kCount; ++i) (*this)[i] = T(first + static_cast<float>(i) * 0.25f);
  }
  T& operator[](int64_t i) { return memory_[kGuard + i]; }
  T* data() { return &memory_[kGuard]; }
  std::vector<uint8_t> Bytes() const {
    const auto* bytes = reinterpret_cast<const uint8_t*>(memory_.get());
    return {bytes, bytes + sizeof(T) * (kCount + 2 * kGuard)};
  }

 private:
  struct Free {
    void operator()(T* p) const { ::operator delete[](p, std::align_val_t{64}); }
  };
  std::unique_ptr<T[], Free> memory_;
};

TEST_CASE("the stream writes what it read, and the working copy") {
  for (const int64_t gradient_bytes : {4, 2})
    for (const bool working : {false, true})
      for (const bool past_caches : {false, true})
        for (const auto& [begin, end] :
             std::vector<std::pair<int64_t, int64_t>>{{0, 0}, {0, 1}, {0, 15}, {32, 64}, {1024, 2049}, {0, kCount}}) {
          CAPTURE(gradient_bytes, working, past_caches, begin, end);
          Numbers<float> g(1), p(2), m(3), v(4);
          Numbers<bf16> half(5);
          Numbers<uint16_t> copy(0);
          const auto before = std::vector{g.Bytes(), p.Bytes(), m.Bytes(), v.Bytes(), half.Bytes()};
          const auto copy_before = copy.Bytes();
          detail::StreamArrays arrays;
          arrays.gradient = gradient_bytes == 4 ? static_cast<const void*>(g.data()) : half.data();
          arrays.gradient_bytes = gradient_bytes;
          arrays.master = p.data(), arrays.m = m.data(), arrays.v = v.data();
          arrays.working = working ? copy.data() : nullptr;
          arrays.past_caches = past_caches;
          detail::StreamRange(arrays, begin, end);
          CHECK(std::vector{g.Bytes(), p.Bytes(), m.Bytes(), v.Bytes(), half.Bytes()} == before);
          int64_t wrong = 0;
          for (int64_t i = 0; i < kCount; ++i) {
            const bool written = working && i >= begin && i < end;
            wrong += copy[i] != (written ? std::bit_cast<uint32_t>(p[i]) >> 16 : 0xffff);
          }
          CHECK(wrong == 0);
          if (!working) CHECK(copy.Bytes() == copy_before);
        }
}

TEST_CASE("step and stream of every case are timed, on any number of parameters") {
  for (const int64_t parameters : {1, 17, 5003}) {
    HostOptimizer optimizer(parameters, 2);
    CHECK(optimizer.parameters() == parameters);
    const std::vector<HostOptimizerTiming> timings = TimeHostOptimizer(optimizer, 0);
    REQUIRE(timings.size() == HostOptimizerCases().size());
    for (const HostOptimizerTiming& timing : timings) {
      CHECK(timing.step.size() >= 1);
      CHECK(timing.stream.size() == timing.step.size());
      for (const double seconds : timing.step) CHECK(seconds > 0);
    }
  }
  CHECK(HostOptimizerCases()[0].BytesPerParameter() == 28);
  CHECK(HostOptimizerCases()[1].BytesPerParameter() == 30);
  CHECK(HostOptimizerCases()[2].BytesPerParameter() == 28);
}

}  // namespace
}  // namespace ds
