// What a Reduce action does on every device: one reduce-scatter of a bucket, and where its result goes.
#pragma once

#include "kernels/elementwise.h"
#include "runtime/comm/communicator.h"
#include "runtime/exec/bind.h"

namespace ds {

/// `kernel`: of the reduce stream. `communicator` is not used by a single rank. copy(from, to) copies a tensor on that
/// stream. Returns the bytes that this rank sent.
template <class Copy>
int64_t ReduceBucket(const KernelContext& kernel, Communicator* communicator, int ranks, const BoundAction& bound,
                     const Copy& copy) {
  const bool accumulate = bound.action->accumulate;
  const auto deliver = [&](const Tensor& from) {
    if (accumulate)
      Add(kernel, bound.shard, from, bound.shard);
    else if (bound.shard.data != from.data)
      copy(from, bound.shard);
  };
  if (ranks == 1) {
    deliver(bound.whole);
    return 0;
  }
  const Tensor piece = bound.staging ? bound.staging : bound.shard;
  communicator->ReduceScatter(bound.whole, piece, bound.workspace);
  if (bound.staging) deliver(piece);
  if (bound.all) communicator->AllGather(bound.shard, bound.all);
  return (bound.all ? 2 : 1) * piece.bytes() * (ranks - 1);
}

}  // namespace ds
