#include "test/layout/ring_order.h"

#include <algorithm>
#include <numeric>

namespace ds::layout_test {
namespace {

class RingCommunicator : public Communicator {
 public:
  explicit RingCommunicator(std::unique_ptr<Communicator> inner) : inner_(std::move(inner)), rings_{inner_->size()} {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  void AllGather(Tensor shard, Tensor whole) override { inner_->AllGather(shard, whole); }
  void ReduceScatter(Tensor whole, Tensor shard, Tensor) override {
    std::vector<float> received(static_cast<size_t>(whole.numel()));
    inner_->AllToAll(whole.Flat(), Tensor::Of(received.data(), Shape{whole.numel()}));
    const int64_t count = shard.numel();
    float* sums = shard.as<float>();
    for (int64_t i = 0; i < count; ++i) {
      const std::vector<int> order = rings_.Order(count, i, rank());
      sums[i] = received[static_cast<size_t>(order[0] * count + i)];
      for (size_t r = 1; r < order.size(); ++r) sums[i] += received[static_cast<size_t>(order[r] * count + i)];
    }
  }
  void AllToAll(Tensor send, Tensor receive) override { inner_->AllToAll(send, receive); }
  void Broadcast(Tensor tensor, int root) override { inner_->Broadcast(tensor, root); }
  void Send(Tensor tensor, int peer) override { inner_->Send(tensor, peer); }
  void Receive(Tensor tensor, int peer) override { inner_->Receive(tensor, peer); }
  void Barrier() override { inner_->Barrier(); }
  std::unique_ptr<Communicator> Split(int color, int key) override { return inner_->Split(color, key); }
  void Abort(const std::string& reason) noexcept override { inner_->Abort(reason); }

 private:
  std::unique_ptr<Communicator> inner_;
  const Rings rings_;
};

int64_t DivideUp(int64_t n, int64_t by) { return (n + by - 1) / by; }

}  // namespace

std::vector<int> Rings::Ring(int channel) const {
  int stride = 1 + channel / 2;
  while (std::gcd(stride, ranks) != 1) ++stride;
  std::vector<int> ring;
  for (int place = 0; place < ranks; ++place) ring.push_back(place * stride % ranks);
  if (channel % 2) std::reverse(ring.begin(), ring.end());
  return ring;
}

std::vector<int> Rings::Order(int64_t count, int64_t at, int owner) const {
  const int64_t used = std::clamp<int64_t>(count * ranks / channel_minimum, 1, channels);
  const int64_t round = at / (used * chunk), begin = round * used * chunk;
  const int64_t piece = std::min(chunk, DivideUp(count - begin, used));
  std::vector<int> order = Ring(static_cast<int>((at - begin) / piece));
  // The rank behind the owner in the ring comes first, the owner last.
  std::rotate(order.begin(), std::find(order.begin(), order.end(), owner) + 1, order.end());
  return order;
}

std::unique_ptr<Communicator> InRingOrder(std::unique_ptr<Communicator> inner) {
  return std::make_unique<RingCommunicator>(std::move(inner));
}

}  // namespace ds::layout_test
