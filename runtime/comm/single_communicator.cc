// A group of one: every collective is a copy.
#include <cstring>
#include <mutex>
#include <optional>

#include "kernels/reduce.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/operation.h"

namespace ds {
namespace {

class SingleCommunicator : public Communicator {
 public:
  explicit SingleCommunicator(std::string stream) : stream_(std::move(stream)) {}

  int rank() const override { return 0; }
  int size() const override { return 1; }

  void AllGather(Tensor shard, Tensor whole) override {
    Begin(CheckAllGather(shard, whole, 1));
    Copy(shard, whole);
  }
  void ReduceScatter(Tensor whole, Tensor shard, Tensor workspace) override {
    Begin(CheckReduceScatter(whole, shard, workspace, 1));
    const Tensor parts[] = {whole.Flat()};
    SumInOrder(KernelContext{}, parts, shard.Flat());
  }
  void AllToAll(Tensor send, Tensor receive) override {
    Begin(CheckAllToAll(send, receive, 1));
    Copy(send, receive);
  }
  void Broadcast(Tensor tensor, int root) override { Begin(CheckBroadcast(tensor, root, 1)); }
  void Send(Tensor tensor, int peer) override { Begin(CheckPointToPoint(Collective::send, tensor, peer, 0, 1)); }
  void Receive(Tensor tensor, int peer) override { Begin(CheckPointToPoint(Collective::receive, tensor, peer, 0, 1)); }
  void Barrier() override { Begin({Collective::barrier}); }

  std::unique_ptr<Communicator> Split(int color, int /*key*/) override {
    Begin({Collective::split});
    return std::make_unique<SingleCommunicator>(stream_ + "/" + std::to_string(color));
  }

  void Abort(const std::string& reason) noexcept override {
    std::lock_guard lock(mutex_);
    if (!aborted_) aborted_ = reason;
  }

 private:
  static void Copy(const Tensor& from, const Tensor& to) {
    if (to.bytes() > 0 && from.data != to.data) std::memcpy(to.data, from.data, to.bytes());
  }

  void Begin(const Operation& operation) {
    std::lock_guard lock(mutex_);
    if (aborted_)
      throw CommunicatorAborted(CommunicatorMessage(stream_, 0, 1, operation.str(), "aborted: " + *aborted_));
  }

  const std::string stream_;
  std::mutex mutex_;
  std::optional<std::string> aborted_;
};

}  // namespace

CommunicatorFactory SingleRankFactory() {
  return [](const std::string& stream) { return std::make_unique<SingleCommunicator>(stream); };
}

}  // namespace ds
