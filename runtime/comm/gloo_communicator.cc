// Communicators among processes over TCP (Gloo). All collectives are direct exchanges between every two ranks: each
// moves as few bytes as any algorithm can, and reductions see all contributions at once, in rank order.
#include <gloo/transport/device.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "kernels/reduce.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/gloo_group.h"

namespace ds {
namespace {

/// What the communicators of one process share.
struct GlooWorld {
  GlooWorld(const GlooOptions& o, Store& s) : options(o), store(s) {}

  std::shared_ptr<gloo::transport::Device> Device() {
    std::lock_guard lock(mutex);
    if (!device) device = GlooDevice(options.interface_address);
    return device;
  }

  /// A prefix in the store for the n-th communicator of this name.
  std::string Prefix(const std::string& name) {
    std::lock_guard lock(mutex);
    return "gloo/" + name + "#" + std::to_string(made[name]++) + "/";
  }

  const GlooOptions options;
  Store& store;
  std::mutex mutex;
  std::shared_ptr<gloo::transport::Device> device;
  std::map<std::string, int> made;
};

class GlooCommunicator : public Communicator {
 public:
  GlooCommunicator(std::shared_ptr<GlooWorld> world, const std::string& stream, int rank, int size)
      : world_(std::move(world)),
        group_(stream, rank, size, world_->Device(), world_->store, world_->Prefix(stream), world_->options.timeout) {
    Barrier();
  }

  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }

  void AllGather(Tensor shard, Tensor whole) override {
    const Operation operation = CheckAllGather(shard, whole, size());
    const int64_t n = operation.count;
    const Tensor own = whole.Flat(rank() * n, n);
    if (own.data != shard.data && own.bytes() > 0) std::memcpy(own.data, shard.data, own.bytes());
    ExchangeWithAll(operation, [&](int peer) { return Route{peer, shard.Flat(), whole.Flat(peer * n, n)}; });
  }

  void ReduceScatter(Tensor whole, Tensor shard, Tensor workspace) override {
    const Operation operation = CheckReduceScatter(whole, shard, workspace, size());
    const int64_t n = operation.count;
    const Tensor pieces(workspace.data, shard.dtype, Shape{size() * n});
    ExchangeWithAll(operation, [&](int peer) {
      return Route{peer, whole.Flat(peer * n, n), pieces.Flat(peer * n, n)};
    });
    std::vector<Tensor> parts;
    for (int r = 0; r < size(); ++r) parts.push_back((r == rank() ? whole : pieces).Flat(r * n, n));
    SumInOrder(KernelContext{}, parts, shard.Flat());
  }

  void AllToAll(Tensor send, Tensor receive) override {
    const Operation operation = CheckAllToAll(send, receive, size());
    const int64_t n = operation.count;
    const Tensor from = send.Flat(rank() * n, n), to = receive.Flat(rank() * n, n);
    if (to.bytes() > 0) std::memcpy(to.data, from.data, to.bytes());
    ExchangeWithAll(operation, [&](int peer) {
      return Route{peer, send.Flat(peer * n, n), receive.Flat(peer * n, n)};
    });
  }

  void Broadcast(Tensor tensor, int root) override {
    const Operation operation = CheckBroadcast(tensor, root, size());
    ExchangeWithAll(operation, [&](int peer) {
      return Route{peer, rank() == root ? tensor.Flat() : kNothing, peer == root ? tensor.Flat() : kNothing};
    });
  }

  void Send(Tensor tensor, int peer) override {
    const Operation operation = CheckPointToPoint(Collective::send, tensor, peer, rank(), size());
    const Route route{peer, tensor.Flat(), kNothing};
    group_.Exchange(operation, {&route, 1});
  }

  void Receive(Tensor tensor, int peer) override {
    const Operation operation = CheckPointToPoint(Collective::receive, tensor, peer, rank(), size());
    const Route route{peer, kNothing, tensor.Flat()};
    group_.Exchange(operation, {&route, 1});
  }

  void Barrier() override {
    ExchangeWithAll({Collective::barrier}, [](int peer) { return Route{peer, kNothing, kNothing}; });
  }

  std::unique_ptr<Communicator> Split(int color, int key) override {
    const int64_t mine[] = {color, key};
    std::vector<int64_t> all(2 * size());
    const Tensor from = Tensor::Of(mine, Shape{2}), to = Tensor::Of(all.data(), Shape{2 * size()});
    std::copy(mine, mine + 2, all.begin() + 2 * rank());
    ExchangeWithAll({Collective::split}, [&](int peer) { return Route{peer, from, to.Flat(2 * peer, 2)}; });

    std::vector<int> members;  // ordered by (key, rank)
    for (int r = 0; r < size(); ++r) {
      if (all[2 * r] == color) members.push_back(r);
    }
    std::stable_sort(members.begin(), members.end(), [&](int a, int b) { return all[2 * a + 1] < all[2 * b + 1]; });
    const int place = static_cast<int>(std::find(members.begin(), members.end(), rank()) - members.begin());
    const std::string stream = group_.stream() + "/" + std::to_string(color);
    if (members.size() == 1) return SingleRankFactory()(stream);
    return std::make_unique<GlooCommunicator>(world_, stream, place, static_cast<int>(members.size()));
  }

  void Abort(const std::string& reason) noexcept override {
    group_.Fail("rank " + std::to_string(rank()) + " aborted: " + reason);
  }

 private:
  using Route = GlooGroup::Route;
  static inline const Tensor kNothing{nullptr, DType::u8, Shape{0}};

  template <class RouteTo>
  void ExchangeWithAll(const Operation& operation, RouteTo route_to) {
    std::vector<Route> routes;
    // Each rank begins with the peer after itself, so that not all send to rank 0 at first.
    for (int step = 1; step < size(); ++step) routes.push_back(route_to((rank() + step) % size()));
    group_.Exchange(operation, routes);
  }

  const std::shared_ptr<GlooWorld> world_;
  GlooGroup group_;
};

}  // namespace

CommunicatorFactory GlooFactory(const GlooOptions& options, Store& store) {
  if (options.size < 1 || options.rank < 0 || options.rank >= options.size)
    throw std::invalid_argument("rank " + std::to_string(options.rank) + " of " + std::to_string(options.size));
  if (options.size == 1) return SingleRankFactory();
  return [world = std::make_shared<GlooWorld>(options, store)](const std::string& stream) {
    return std::make_unique<GlooCommunicator>(world, stream, world->options.rank, world->options.size);
  };
}

}  // namespace ds
