// Collectives as direct exchanges between every two ranks: each moves as few bytes as any algorithm can, and reductions
// see all contributions at once, in rank order, so that the bits are the same whatever carries the messages.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/gloo_group.h"
#include "runtime/comm/operation.h"

namespace ds {

class ExchangeCommunicator : public Communicator {
 public:
  void AllGather(Tensor shard, Tensor whole) override;
  void ReduceScatter(Tensor whole, Tensor shard, Tensor workspace) override;
  void AllToAll(Tensor send, Tensor receive) override;
  void Broadcast(Tensor tensor, int root) override;
  void Send(Tensor tensor, int peer) override;
  void Receive(Tensor tensor, int peer) override;
  void Barrier() override;
  std::unique_ptr<Communicator> Split(int color, int key) override;

 protected:
  using Route = GlooGroup::Route;

  /// Sends and receives along all routes at once; every rank that a route names makes the fitting call. Throws
  /// CommunicatorAborted where operations differ, a peer is lost or late, or the group failed before.
  virtual void Exchange(const Operation& operation, std::span<const Route> routes) = 0;

  /// Names the group to its peers and in errors.
  virtual const std::string& name() const = 0;

  /// The communicator of `members`, ranks of this one, in which this process has the rank `place`. Two or more.
  virtual std::unique_ptr<Communicator> Subgroup(const std::string& name, int place,
                                                 const std::vector<int>& members) = 0;

 private:
  template <class RouteTo>
  void ExchangeWithAll(const Operation& operation, RouteTo route_to);
};

}  // namespace ds
