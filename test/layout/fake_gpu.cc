#include "test/layout/fake_gpu.h"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <stdexcept>

namespace ds::layout_test {
namespace {

using Clock = std::chrono::steady_clock;

struct FakeEvent {
  bool timed = false, recorded = false;
  Clock::time_point at;
};

class FakeGpu : public Gpu {
 public:
  explicit FakeGpu(Device device) : device_(device) {}
  Device device() const override { return device_; }
  std::string name() const override { return "a GPU that is none"; }
  void Use() override {}

  MemoryInfo Memory() override { return {int64_t{1} << 40, int64_t{1} << 40}; }
  void* Allocate(int64_t bytes) override {
    void* memory = std::aligned_alloc(256, static_cast<size_t>((bytes + 255) / 256 * 256));
    std::memset(memory, 0, static_cast<size_t>(bytes));
    return memory;
  }
  void Free(void* memory) noexcept override { std::free(memory); }
  void* AllocateHost(int64_t bytes) override { return Allocate(bytes); }
  void FreeHost(void* memory) noexcept override { std::free(memory); }

  void* NewStream() override {
    streams_.insert(++streams_made_);
    return reinterpret_cast<void*>(streams_made_);
  }
  void DeleteStream(void* stream) noexcept override { streams_.erase(reinterpret_cast<intptr_t>(stream)); }
  void* NewEvent(bool timed) override { return new FakeEvent{timed, false, {}}; }
  void DeleteEvent(void* event) noexcept override { delete static_cast<FakeEvent*>(event); }
  void Record(void* event, void* stream) override {
    Check(stream);
    static_cast<FakeEvent*>(event)->recorded = true;
    static_cast<FakeEvent*>(event)->at = Clock::now();
  }
  void Wait(void* stream, void* event) override {
    Check(stream);
    Recorded(event);
  }
  bool Done(void* event) override {
    Recorded(event);
    return true;
  }
  double Seconds(void* begin, void* end) override {
    const FakeEvent &from = Recorded(begin), &to = Recorded(end);
    if (!from.timed || !to.timed) throw std::logic_error("the time of an event that is not timed");
    return std::chrono::duration<double>(to.at - from.at).count();
  }
  void Synchronize(void* stream) override {
    if (stream) Check(stream);
  }

  void Copy(const void* from, void* to, int64_t bytes, void* stream) override {
    if (stream) Check(stream);
    std::memmove(to, from, static_cast<size_t>(bytes));
  }
  void Set(void* memory, uint8_t value, int64_t bytes, void* stream) override {
    if (stream) Check(stream);
    std::memset(memory, value, static_cast<size_t>(bytes));
  }
  void BeginRange(const char*) override {}
  void EndRange() override {}

 private:
  static const FakeEvent& Recorded(void* event) {
    const FakeEvent* known = static_cast<FakeEvent*>(event);
    if (!known || !known->recorded) throw std::logic_error("an event that nobody has recorded");
    return *known;
  }
  void Check(void* stream) const {
    if (!streams_.count(reinterpret_cast<intptr_t>(stream))) throw std::logic_error("no such stream");
  }

  const Device device_;
  std::set<intptr_t> streams_;
  intptr_t streams_made_ = 0;
};

}  // namespace

std::unique_ptr<Gpu> MakeFakeGpu(Device device) { return std::make_unique<FakeGpu>(device); }

}  // namespace ds::layout_test
