#include "runtime/comm/operation.h"

#include <stdexcept>

#include "runtime/comm/communicator.h"

namespace ds {
namespace {

void Require(bool condition, Collective kind, const std::string& what) {
  if (!condition) throw std::invalid_argument(std::string(NameOf(kind)) + ": " + what);
}

void RequireOn(Device where, Collective kind, const Tensor& tensor) {
  Require(tensor.device == where, kind,
          where.kind == DeviceKind::cpu
              ? "this communicator moves host memory only"
              : "this communicator moves memory of GPU " + std::to_string(where.index) + " only");
  Require(tensor || tensor.numel() == 0, kind, "a tensor without memory");
}

bool Overlap(const Tensor& a, const Tensor& b) {
  const char *a_begin = static_cast<const char*>(a.data), *b_begin = static_cast<const char*>(b.data);
  return a.bytes() > 0 && b.bytes() > 0 && a_begin < b_begin + b.bytes() && b_begin < a_begin + a.bytes();
}

std::string Extents(const Tensor& tensor) { return std::to_string(tensor.numel()) + " " + NameOf(tensor.dtype); }

}  // namespace

const char* NameOf(Collective kind) {
  switch (kind) {
    case Collective::all_gather:
      return "all_gather";
    case Collective::reduce_scatter:
      return "reduce_scatter";
    case Collective::all_to_all:
      return "all_to_all";
    case Collective::broadcast:
      return "broadcast";
    case Collective::send:
      return "send";
    case Collective::receive:
      return "receive";
    case Collective::barrier:
      return "barrier";
    case Collective::split:
      return "split";
  }
  return "?";
}

std::string Operation::str() const {
  std::string text = NameOf(kind);
  if (kind == Collective::barrier || kind == Collective::split) return text;
  text += " of " + std::to_string(count) + " " + NameOf(dtype);
  if (kind == Collective::send) text += " to rank " + std::to_string(peer);
  if (kind == Collective::receive) text += " from rank " + std::to_string(peer);
  if (kind == Collective::broadcast) text += " from rank " + std::to_string(peer);
  return text;
}

bool Pairs(const Operation& a, const Operation& b) {
  return a.point_to_point() && b.point_to_point() && a.kind != b.kind && a.dtype == b.dtype && a.count == b.count;
}

Operation CheckAllGather(const Tensor& shard, const Tensor& whole, int size, Device where) {
  constexpr Collective kind = Collective::all_gather;
  RequireOn(where, kind, shard);
  RequireOn(where, kind, whole);
  Require(shard.dtype == whole.dtype && whole.numel() == size * shard.numel(), kind,
          "whole has " + Extents(whole) + ", not " + std::to_string(size) + " shards of " + Extents(shard));
  return {kind, shard.dtype, shard.numel(), -1};
}

Operation CheckReduceScatter(const Tensor& whole, const Tensor& shard, const Tensor& workspace, int size,
                             Device where) {
  constexpr Collective kind = Collective::reduce_scatter;
  RequireOn(where, kind, shard);
  RequireOn(where, kind, whole);
  Require(shard.dtype == whole.dtype && whole.numel() == size * shard.numel(), kind,
          "whole has " + Extents(whole) + ", not " + std::to_string(size) + " shards of " + Extents(shard));
  Require(
      shard.dtype == DType::f32 || shard.dtype == DType::f64 || shard.dtype == DType::bf16 || shard.dtype == DType::f16,
      kind, std::string("cannot add ") + NameOf(shard.dtype));
  Require(!Overlap(shard, whole), kind, "shard overlaps whole");
  if (where.kind == DeviceKind::cpu) {
    const int64_t needed = ReduceScatterWorkspace(whole.bytes(), size);
    Require(workspace.bytes() >= needed, kind,
            "workspace has " + std::to_string(workspace.bytes()) + " bytes, not " + std::to_string(needed));
    RequireOn(where, kind, workspace);
  }
  return {kind, shard.dtype, shard.numel(), -1};
}

Operation CheckAllToAll(const Tensor& send, const Tensor& receive, int size, Device where) {
  constexpr Collective kind = Collective::all_to_all;
  RequireOn(where, kind, send);
  RequireOn(where, kind, receive);
  Require(send.dtype == receive.dtype && send.numel() == receive.numel() && send.numel() % size == 0, kind,
          "sends " + Extents(send) + " and receives " + Extents(receive) + ": not " + std::to_string(size) +
              " equal pieces each");
  Require(!Overlap(send, receive), kind, "the tensors overlap");
  return {kind, send.dtype, send.numel() / size, -1};
}

Operation CheckBroadcast(const Tensor& tensor, int root, int size, Device where) {
  constexpr Collective kind = Collective::broadcast;
  RequireOn(where, kind, tensor);
  Require(root >= 0 && root < size, kind, "no rank " + std::to_string(root) + " among " + std::to_string(size));
  return {kind, tensor.dtype, tensor.numel(), root};
}

Operation CheckPointToPoint(Collective kind, const Tensor& tensor, int peer, int rank, int size, Device where) {
  RequireOn(where, kind, tensor);
  Require(peer >= 0 && peer < size && peer != rank, kind,
          "rank " + std::to_string(rank) + " of " + std::to_string(size) + " has no peer " + std::to_string(peer));
  return {kind, tensor.dtype, tensor.numel(), peer};
}

std::string CommunicatorMessage(const std::string& stream, int rank, int size, const std::string& what,
                                const std::string& reason) {
  return "stream '" + stream + "', rank " + std::to_string(rank) + " of " + std::to_string(size) + ": " + what + ": " +
         reason;
}

}  // namespace ds
