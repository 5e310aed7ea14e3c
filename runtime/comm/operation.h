// What a rank asks of its group in one call: compared between ranks, so that a mismatch is named instead of hanging or
// mixing up bytes, and the words of every communicator's errors.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/tensor.h"

namespace ds {

enum class Collective : uint8_t { all_gather, reduce_scatter, all_to_all, broadcast, send, receive, barrier, split };

/// "all_gather", "reduce_scatter", ...
const char* NameOf(Collective kind);

/// One call, as far as ranks must agree on it.
struct Operation {
  Collective kind = Collective::barrier;
  DType dtype = DType::u8;
  int64_t count = 0;  ///< elements a rank contributes (all_gather, all_to_all: of one piece) or receives
  int peer = -1;      ///< broadcast: the root; send, receive: the other rank; else -1

  bool point_to_point() const { return kind == Collective::send || kind == Collective::receive; }
  bool operator==(const Operation&) const = default;
  /// "all_gather of 1024 f32", "send of 3 bf16 to rank 2", "barrier"
  std::string str() const;
};

/// A send and a receive agree: opposite kinds, the same elements.
bool Pairs(const Operation& a, const Operation& b);

/// The operation of a call, after its tensors were checked against the contract of communicator.h. `where`: the memory
/// that the communicator moves; on a GPU a reduction's workspace is not looked at. Throws std::invalid_argument: wrong
/// extents are an error of the caller alone.
Operation CheckAllGather(const Tensor& shard, const Tensor& whole, int size, Device where = {});
Operation CheckReduceScatter(const Tensor& whole, const Tensor& shard, const Tensor& workspace, int size,
                             Device where = {});
Operation CheckAllToAll(const Tensor& send, const Tensor& receive, int size, Device where = {});
Operation CheckBroadcast(const Tensor& tensor, int root, int size, Device where = {});
Operation CheckPointToPoint(Collective kind, const Tensor& tensor, int peer, int rank, int size, Device where = {});

/// "stream 'gather', rank 1 of 4: all_gather of 1024 f32: REASON"; `what`: Operation::str(), or "connect".
std::string CommunicatorMessage(const std::string& stream, int rank, int size, const std::string& what,
                                const std::string& reason);

}  // namespace ds
