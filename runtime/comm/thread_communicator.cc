// Communicators among threads of one process: what tests use to run many ranks without processes.
#include <algorithm>
#include <cstring>

#include "kernels/reduce.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/thread_group.h"

namespace ds {
namespace {

void Copy(const Tensor& from, const Tensor& to) {
  if (to.bytes() > 0 && from.data != to.data) std::memcpy(to.data, from.data, to.bytes());
}

class ThreadCommunicator : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<ThreadGroup> group, int rank) : group_(std::move(group)), rank_(rank) {}
  ~ThreadCommunicator() override { group_->Leave(rank_); }

  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }

  void AllGather(Tensor shard, Tensor whole) override {
    Meet({CheckAllGather(shard, whole, size()), shard, whole}, [&](Meeting& meeting) {
      for (int r = 0; r < size(); ++r) Copy(meeting.calls[r].in.Flat(), whole.Flat(r * shard.numel(), shard.numel()));
    });
  }

  void ReduceScatter(Tensor whole, Tensor shard, Tensor workspace) override {
    Meet({CheckReduceScatter(whole, shard, workspace, size()), whole, shard}, [&](Meeting& meeting) {
      std::vector<Tensor> parts;
      for (const ThreadGroup::Call& call : meeting.calls)
        parts.push_back(call.in.Flat(rank_ * shard.numel(), shard.numel()));
      SumInOrder(KernelContext{}, parts, shard.Flat());
    });
  }

  void AllToAll(Tensor send, Tensor receive) override {
    const Operation operation = CheckAllToAll(send, receive, size());
    const int64_t piece = operation.count;
    Meet({operation, send, receive}, [&](Meeting& meeting) {
      for (int r = 0; r < size(); ++r)
        Copy(meeting.calls[r].in.Flat(rank_ * piece, piece), receive.Flat(r * piece, piece));
    });
  }

  void Broadcast(Tensor tensor, int root) override {
    Meet({CheckBroadcast(tensor, root, size()), tensor, tensor},
         [&](Meeting& meeting) { Copy(meeting.calls[root].in, tensor); });
  }

  void Send(Tensor tensor, int peer) override {
    group_->Send(rank_, {CheckPointToPoint(Collective::send, tensor, peer, rank_, size()), tensor, {}});
  }

  void Receive(Tensor tensor, int peer) override {
    group_->Receive(rank_, {CheckPointToPoint(Collective::receive, tensor, peer, rank_, size()), {}, tensor});
  }

  void Barrier() override {
    Meet({{Collective::barrier}, {}, {}}, [](Meeting&) {});
  }

  std::unique_ptr<Communicator> Split(int color, int key) override {
    std::unique_ptr<Communicator> part;
    group_->Meet(
        rank_, ++calls_, {{Collective::split}, {}, {}, color, key}, [this](Meeting& meeting) { MakeGroups(meeting); },
        [&](Meeting& meeting) {
          const std::vector<int> members = MembersOf(meeting, color);
          const auto place = std::find(members.begin(), members.end(), rank_) - members.begin();
          part = std::make_unique<ThreadCommunicator>(meeting.groups.at(color), static_cast<int>(place));
        });
    return part;
  }

  void Abort(const std::string& reason) noexcept override { group_->Abort(reason); }

 private:
  using Meeting = ThreadGroup::Meeting;

  void Meet(const ThreadGroup::Call& call, const std::function<void(Meeting&)>& part) {
    group_->Meet(
        rank_, ++calls_, call, [](Meeting&) {}, part);
  }

  /// The ranks of a color, ordered by (key, rank).
  static std::vector<int> MembersOf(const Meeting& meeting, int color) {
    std::vector<int> members;
    for (size_t r = 0; r < meeting.calls.size(); ++r) {
      if (meeting.calls[r].color == color) members.push_back(static_cast<int>(r));
    }
    std::stable_sort(members.begin(), members.end(),
                     [&](int a, int b) { return meeting.calls[a].key < meeting.calls[b].key; });
    return members;
  }

  void MakeGroups(Meeting& meeting) const {
    for (const ThreadGroup::Call& call : meeting.calls) {
      auto& group = meeting.groups[call.color];
      if (!group)
        group =
            std::make_shared<ThreadGroup>(group_->stream() + "/" + std::to_string(call.color),
                                          static_cast<int>(MembersOf(meeting, call.color).size()), group_->timeout());
    }
  }

  const std::shared_ptr<ThreadGroup> group_;
  const int rank_;
  int64_t calls_ = 0;  ///< collectives begun: the same number on every rank for the same call
};

}  // namespace

struct ThreadWorld::Impl {
  Impl(int n, std::chrono::milliseconds t) : size(n), timeout(t) {}

  std::unique_ptr<Communicator> Make(int rank, const std::string& stream) {
    if (rank < 0 || rank >= size)
      throw std::invalid_argument("no rank " + std::to_string(rank) + " among " + std::to_string(size) + " threads");
    std::lock_guard lock(mutex);
    // The n-th communicator that a rank asks for under a name belongs to the n-th of the other ranks.
    const int nth = made[{rank, stream}]++;
    auto& group = groups[{stream, nth}];
    if (!group) {
      group = std::make_shared<ThreadGroup>(stream, size, timeout);
      if (aborted) group->Abort(*aborted);
    }
    return std::make_unique<ThreadCommunicator>(group, rank);
  }

  const int size;
  const std::chrono::milliseconds timeout;
  std::mutex mutex;
  std::map<std::pair<int, std::string>, int> made;
  std::map<std::pair<std::string, int>, std::shared_ptr<ThreadGroup>> groups;
  std::optional<std::string> aborted;
};

ThreadWorld::ThreadWorld(int size, std::chrono::milliseconds timeout) : impl_(std::make_shared<Impl>(size, timeout)) {
  if (size < 1) throw std::invalid_argument("a world of " + std::to_string(size) + " ranks");
}

ThreadWorld::~ThreadWorld() = default;

std::unique_ptr<Communicator> ThreadWorld::Make(int rank, const std::string& stream) {
  return impl_->Make(rank, stream);
}

CommunicatorFactory ThreadWorld::Factory(int rank) {
  return [impl = impl_, rank](const std::string& stream) { return impl->Make(rank, stream); };
}

void ThreadWorld::Abort(const std::string& reason) noexcept {
  std::lock_guard lock(impl_->mutex);
  if (!impl_->aborted) impl_->aborted = reason;
  for (auto& [key, group] : impl_->groups) group->Abort(reason);
}

}  // namespace ds
