#include "test/layout/fake_gpu.h"

#include <algorithm>
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
  FakeGpu(FakeMemory* memory, Device device, bool multiplies_fp8)
      : memory_(memory ? memory : &own_), itself_(device), multiplies_fp8_(multiplies_fp8) {}
  Device device() const override { return itself_; }
  std::string name() const override { return "a GPU that is none"; }
  bool MultipliesFp8() const override { return multiplies_fp8_; }
  void Use() override {}

  MemoryInfo Memory() override { return {memory_->total - memory_->device, memory_->total}; }
  void* Allocate(int64_t bytes) override {
    void* taken = Take(bytes, device_, memory_->device);
    memory_->most = std::max(memory_->most, memory_->device);
    return taken;
  }
  void Free(void* memory) noexcept override { Give(memory, device_, memory_->device); }
  void* AllocateHost(int64_t bytes) override {
    void* taken = Take(bytes, host_, memory_->host);
    memory_->most_host = std::max(memory_->most_host, memory_->host);
    return taken;
  }
  void FreeHost(void* memory) noexcept override { Give(memory, host_, memory_->host); }

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
  using Blocks = std::map<void*, int64_t>;
  static void* Take(int64_t bytes, Blocks& blocks, int64_t& count) {
    void* memory = std::aligned_alloc(256, static_cast<size_t>((bytes + 255) / 256 * 256));
    std::memset(memory, 0, static_cast<size_t>(bytes));
    blocks[memory] = bytes;
    count += bytes;
    return memory;
  }
  static void Give(void* memory, Blocks& blocks, int64_t& count) noexcept {
    if (!memory) return;
    const auto block = blocks.find(memory);
    if (block == blocks.end()) std::abort();  // not from here, or given back already
    count -= block->second;
    blocks.erase(block);
    std::free(memory);
  }
  static const FakeEvent& Recorded(void* event) {
    const FakeEvent* known = static_cast<FakeEvent*>(event);
    if (!known || !known->recorded) throw std::logic_error("an event that nobody has recorded");
    return *known;
  }
  void Check(void* stream) const {
    if (!streams_.count(reinterpret_cast<intptr_t>(stream))) throw std::logic_error("no such stream");
  }

  FakeMemory own_;
  FakeMemory* const memory_;
  const Device itself_;
  const bool multiplies_fp8_;
  Blocks device_, host_;
  std::set<intptr_t> streams_;
  intptr_t streams_made_ = 0;
};

}  // namespace

std::unique_ptr<Gpu> MakeFakeGpu(Device device) { return std::make_unique<FakeGpu>(nullptr, device, true); }

std::unique_ptr<Gpu> MakeFakeGpu(FakeMemory* memory, bool multiplies_fp8) {
  return std::make_unique<FakeGpu>(memory, Device{}, multiplies_fp8);
}

}  // namespace ds::layout_test
