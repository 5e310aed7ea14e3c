#include "runtime/comm/exchange_communicator.h"

#include <algorithm>
#include <cstring>

#include "kernels/reduce.h"

namespace ds {
namespace {

const Tensor kNothing{nullptr, DType::u8, Shape{0}};

}  // namespace

template <class RouteTo>
void ExchangeCommunicator::ExchangeWithAll(const Operation& operation, RouteTo route_to) {
  std::vector<Route> routes;
  // Each rank begins with the peer after itself, so that not all send to rank 0 at first.
  for (int step = 1; step < size(); ++step) routes.push_back(route_to((rank() + step) % size()));
  Exchange(operation, routes);
}

void ExchangeCommunicator::AllGather(Tensor shard, Tensor whole) {
  const Operation operation = CheckAllGather(shard, whole, size());
  const int64_t n = operation.count;
  const Tensor own = whole.Flat(rank() * n, n);
  if (own.data != shard.data && own.bytes() > 0) std::memcpy(own.data, shard.data, own.bytes());
  ExchangeWithAll(operation, [&](int peer) { return Route{peer, shard.Flat(), whole.Flat(peer * n, n)}; });
}

void ExchangeCommunicator::ReduceScatter(Tensor whole, Tensor shard, Tensor workspace) {
  const Operation operation = CheckReduceScatter(whole, shard, workspace, size());
  const int64_t n = operation.count;
  const Tensor pieces(workspace.data, shard.dtype, Shape{size() * n});
  ExchangeWithAll(operation, [&](int peer) { return Route{peer, whole.Flat(peer * n, n), pieces.Flat(peer * n, n)}; });
  std::vector<Tensor> parts;
  for (int r = 0; r < size(); ++r) parts.push_back((r == rank() ? whole : pieces).Flat(r * n, n));
  SumInOrder(KernelContext{}, parts, shard.Flat());
}

void ExchangeCommunicator::AllToAll(Tensor send, Tensor receive) {
  const Operation operation = CheckAllToAll(send, receive, size());
  const int64_t n = operation.count;
  const Tensor from = send.Flat(rank() * n, n), to = receive.Flat(rank() * n, n);
  if (to.bytes() > 0) std::memcpy(to.data, from.data, to.bytes());
  ExchangeWithAll(operation, [&](int peer) { return Route{peer, send.Flat(peer * n, n), receive.Flat(peer * n, n)}; });
}

void ExchangeCommunicator::Broadcast(Tensor tensor, int root) {
  const Operation operation = CheckBroadcast(tensor, root, size());
  ExchangeWithAll(operation, [&](int peer) {
    return Route{peer, rank() == root ? tensor.Flat() : kNothing, peer == root ? tensor.Flat() : kNothing};
  });
}

void ExchangeCommunicator::Send(Tensor tensor, int peer) {
  const Operation operation = CheckPointToPoint(Collective::send, tensor, peer, rank(), size());
  const Route route{peer, tensor.Flat(), kNothing};
  Exchange(operation, {&route, 1});
}

void ExchangeCommunicator::Receive(Tensor tensor, int peer) {
  const Operation operation = CheckPointToPoint(Collective::receive, tensor, peer, rank(), size());
  const Route route{peer, kNothing, tensor.Flat()};
  Exchange(operation, {&route, 1});
}

void ExchangeCommunicator::Barrier() {
  ExchangeWithAll({Collective::barrier}, [](int peer) { return Route{peer, kNothing, kNothing}; });
}

std::unique_ptr<Communicator> ExchangeCommunicator::Split(int color, int key) {
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
  const std::string subgroup = name() + "/" + std::to_string(color);
  if (members.size() == 1) return SingleRankFactory()(subgroup);
  return Subgroup(subgroup, place, members);
}

}  // namespace ds
