#include "runtime/comm/nccl/nccl_communicator.h"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <algorithm>
#include <mutex>
#include <numeric>

#include "kernels/cuda_check.h"
#include "runtime/base/log.h"
#include "runtime/comm/nccl/nccl_group.h"
#include "runtime/comm/nccl/wait.h"
#include "runtime/comm/nccl_environment.h"

namespace ds {
namespace {

/// Of what is added; other elements are moved as bytes.
ncclDataType_t TypeOf(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return ncclFloat64;
    case DType::f32:
      return ncclFloat32;
    case DType::bf16:
      return ncclBfloat16;
    case DType::f16:
      return ncclFloat16;
    default:
      return ncclUint8;
  }
}

/// Calls of one NCCL group: they start together. Returns the first result that is an error, else the group's.
class Together {
 public:
  Together() { Add(ncclGroupStart()); }
  void Add(ncclResult_t result) {
    if (result != ncclSuccess && result != ncclInProgress && error_ == ncclSuccess) error_ = result;
  }
  ncclResult_t End() {
    const ncclResult_t result = ncclGroupEnd();
    return error_ == ncclSuccess ? result : error_;
  }

 private:
  ncclResult_t error_ = ncclSuccess;
};

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(std::shared_ptr<NcclWorld> world, const std::string& name, std::vector<int> ranks,
                   const std::string& prefix)
      : device_{DeviceKind::cuda, world->options().device}, group_(world, name, std::move(ranks), prefix) {
    // Rings connect, and take their memory, at their first use: here rather than in the first step.
    Barrier();
  }

  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }
  void* stream() const override { return group_.stream().get(); }

  void AllGather(Tensor shard, Tensor whole) override {
    const Operation operation = CheckAllGather(shard, whole, size(), device_);
    Run(operation, [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclAllGather(shard.data, whole.data, Bytes(shard), ncclUint8, comm, stream);
    });
  }

  void ReduceScatter(Tensor whole, Tensor shard, Tensor workspace) override {
    const Operation operation = CheckReduceScatter(whole, shard, workspace, size(), device_);
    Run(operation, [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclReduceScatter(whole.data, shard.data, static_cast<size_t>(shard.numel()), TypeOf(shard.dtype), ncclSum,
                               comm, stream);
    });
  }

  void AllToAll(Tensor send, Tensor receive) override {
    const Operation operation = CheckAllToAll(send, receive, size(), device_);
    const int64_t n = operation.count;
    Run(operation, [&](ncclComm_t comm, cudaStream_t stream) {
      Together group;
      for (int r = 0; r < size(); ++r) {
        const Tensor out = send.Flat(r * n, n), in = receive.Flat(r * n, n);
        group.Add(ncclSend(out.data, Bytes(out), ncclUint8, r, comm, stream));
        group.Add(ncclRecv(in.data, Bytes(in), ncclUint8, r, comm, stream));
      }
      return group.End();
    });
  }

  void Broadcast(Tensor tensor, int root) override {
    const Operation operation = CheckBroadcast(tensor, root, size(), device_);
    Run(operation, [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclBroadcast(tensor.data, tensor.data, Bytes(tensor), ncclUint8, root, comm, stream);
    });
  }

  void Send(Tensor tensor, int peer) override {
    const Operation operation = CheckPointToPoint(Collective::send, tensor, peer, rank(), size(), device_);
    Run(operation, [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclSend(tensor.data, Bytes(tensor), ncclUint8, peer, comm, stream);
    });
  }

  void Receive(Tensor tensor, int peer) override {
    const Operation operation = CheckPointToPoint(Collective::receive, tensor, peer, rank(), size(), device_);
    Run(operation, [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclRecv(tensor.data, Bytes(tensor), ncclUint8, peer, comm, stream);
    });
  }

  void Barrier() override {
    group_.Run({Collective::barrier}, [&](ncclComm_t comm, cudaStream_t stream) {
      int32_t* scratch = group_.stream().scratch();
      return ncclAllReduce(scratch, scratch, 1, ncclInt32, ncclSum, comm, stream);
    });
  }

  std::unique_ptr<Communicator> Split(int color, int key) override {
    if (color < 0) throw std::invalid_argument("split: a negative color, " + std::to_string(color));
    const std::string split = "split" + std::to_string(splits_++) + "/";
    group_.Leave(split + std::to_string(rank()), std::to_string(color) + " " + std::to_string(key));
    std::vector<std::pair<int, int>> members;  // (key, rank): their order is the new group's
    for (int r = 0; r < size(); ++r) {
      const std::string theirs = group_.Await(split + std::to_string(r), r);
      const size_t space = theirs.find(' ');
      if (std::stoi(theirs.substr(0, space)) == color) members.emplace_back(std::stoi(theirs.substr(space + 1)), r);
    }
    std::sort(members.begin(), members.end());
    std::vector<int> ranks;
    for (const auto& [order, r] : members) ranks.push_back(group_.ranks()[r]);
    const std::string part = std::to_string(color);
    return std::make_unique<NcclCommunicator>(group_.world(), group_.name() + "/" + part, std::move(ranks),
                                              group_.prefix() + split + part + "/");
  }

  void Abort(const std::string& reason) noexcept override { group_.Abort(reason); }
  void CheckAsync() override { group_.Check(); }

 private:
  static size_t Bytes(const Tensor& tensor) { return static_cast<size_t>(tensor.bytes()); }

  void Run(const Operation& operation, const NcclGroup::Enqueue& enqueue) {
    if (operation.count > 0) group_.Run(operation, enqueue);
  }

  const Device device_;
  NcclGroup group_;
  int splits_ = 0;
};

void Prepare(const NcclOptions& options) {
  static std::once_flag once;
  std::call_once(once, [&] {
    const std::string variables = SetEnvironment(NcclEnvironment(options.interface_address, options.pinned));
    int version = 0;
    ncclGetVersion(&version);
    LogInfo("NCCL " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
            std::to_string(version % 100) + ", " + std::to_string(options.channels) + " channels a communicator, " +
            variables);
  });
}

}  // namespace

CommunicatorFactory NcclFactory(const NcclOptions& options, Store& store) {
  if (options.size < 1 || options.rank < 0 || options.rank >= options.size)
    throw std::invalid_argument("rank " + std::to_string(options.rank) + " of " + std::to_string(options.size));
  Prepare(options);
  return [world = std::make_shared<NcclWorld>(options, store)](const std::string& name) {
    cuda::CheckCuda(cudaSetDevice(world->options().device), "cudaSetDevice");
    world->Connect();
    std::vector<int> ranks(world->options().size);
    std::iota(ranks.begin(), ranks.end(), 0);
    return std::make_unique<NcclCommunicator>(world, name, std::move(ranks), world->Prefix(name));
  };
}

}  // namespace ds
