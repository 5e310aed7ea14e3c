#include "runtime/comm/nccl/nccl_world.h"

#include <algorithm>

namespace ds {
namespace {

using std::chrono::steady_clock;

/// After a rank left, its last messages may still be on their way.
constexpr auto kLeave = std::chrono::seconds(2);

}  // namespace

void NcclWorld::Connect() {
  if (options_.size == 1) return;
  {
    std::lock_guard lock(mutex_);
    if (peers_) return;
  }
  auto peers = std::make_shared<GlooGroup>(
      "nccl", options_.rank, options_.size, GlooDevice(options_.interface_address), store_, "nccl/", options_.timeout,
      GlooGroup::Observer{[this](const std::string& reason) { Fail(reason); }, [this](int peer) { PeerLeft(peer); }});
  std::lock_guard lock(mutex_);
  peers_ = std::move(peers);
}

std::string NcclWorld::Prefix(const std::string& name) {
  std::lock_guard lock(mutex_);
  return "nccl/" + name + "#" + std::to_string(made_[name]++) + "/";
}

bool NcclWorld::Add(NcclMember& member) {
  std::lock_guard lock(mutex_);
  if (failed_) return false;
  members_.push_back(&member);
  return true;
}

void NcclWorld::Remove(NcclMember& member) {
  std::lock_guard lock(mutex_);
  std::erase(members_, &member);
}

void NcclWorld::Fail(const std::string& reason) noexcept {
  std::shared_ptr<GlooGroup> peers;
  {
    std::lock_guard lock(mutex_);
    if (failed_.exchange(true)) return;
    reason_ = reason;
    for (NcclMember* member : members_) {
      const std::string interrupted = member->Interrupt(reason);
      if (interrupted_.empty()) interrupted_ = interrupted;
    }
    told_ = true;
    peers = peers_;
  }
  changed_.notify_all();
  if (peers) peers->Fail(reason);
}

std::string NcclWorld::reason() const {
  std::lock_guard lock(mutex_);
  return reason_;
}

std::string NcclWorld::interrupted() const {
  std::lock_guard lock(mutex_);
  return interrupted_;
}

void NcclWorld::AwaitFailure(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, timeout, [this] { return told_; });
}

void NcclWorld::PeerLeft(int peer) {
  std::lock_guard lock(mutex_);
  left_[peer] = steady_clock::now();
  any_left_ = true;
}

int NcclWorld::Left(const std::vector<int>& ranks) const {
  if (!any_left_) return -1;
  std::lock_guard lock(mutex_);
  for (const auto& [rank, when] : left_) {
    if (steady_clock::now() - when > kLeave && std::find(ranks.begin(), ranks.end(), rank) != ranks.end()) return rank;
  }
  return -1;
}

}  // namespace ds
