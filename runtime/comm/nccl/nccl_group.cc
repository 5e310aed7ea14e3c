#include "runtime/comm/nccl/nccl_group.h"

#include <algorithm>
#include <cstring>
#include <thread>

namespace ds {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

/// For the stream to come to its end when the group goes.
constexpr auto kDrain = std::chrono::seconds(5);
/// For the connections to tell why a call failed: they know which rank was lost, NCCL often does not.
constexpr auto kCause = std::chrono::seconds(1);
/// One wait for the store, between looks at whether the world has failed.
constexpr milliseconds kStoreWait{500};

constexpr const char* kConnect = "connect";

std::string Rank(int rank) { return "rank " + std::to_string(rank); }

std::string NotWithin(milliseconds time) { return " did not come within " + std::to_string(time.count()) + " ms"; }

std::string Explain(ncclResult_t result) {
  const std::string text = std::string("NCCL: ") + ncclGetErrorString(result);
  const char* last = ncclGetLastError(nullptr);
  return last && *last ? text + " (" + last + ")" : text;
}

int PlaceOf(int rank, const std::vector<int>& ranks) {
  return static_cast<int>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
}

/// Between looks at NCCL's part of a call on the host, which takes microseconds as a rule.
void Pause(int round) {
  if (round < 200)
    std::this_thread::yield();
  else
    std::this_thread::sleep_for(std::chrono::microseconds(50));
}

}  // namespace

NcclGroup::NcclGroup(std::shared_ptr<NcclWorld> world, std::string name, std::vector<int> ranks, std::string prefix)
    : world_(std::move(world)),
      name_(std::move(name)),
      prefix_(std::move(prefix)),
      ranks_(std::move(ranks)),
      rank_(PlaceOf(world_->options().rank, ranks_)) {
  if (!world_->Add(*this)) ThrowFailed(kConnect);
  try {
    Connect();
  } catch (...) {
    world_->Remove(*this);
    if (!handle_.Close()) stream_.Leak();
    throw;
  }
}

NcclGroup::~NcclGroup() {
  const auto deadline = steady_clock::now() + kDrain;
  const auto drained = [this] {
    std::lock_guard lock(mutex_);
    return Oldest().empty();
  };
  while (!drained() && !world_->failed() && steady_clock::now() < deadline)
    std::this_thread::sleep_for(milliseconds(1));
  world_->Remove(*this);
  if (!drained()) handle_.Abort();
  if (!handle_.Close()) stream_.Leak();
}

void NcclGroup::Connect() {
  const ncclUniqueId id = UniqueId();
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.minCTAs = config.maxCTAs = world_->options().channels;
  const auto result =
      handle_.Call([&](ncclComm_t& comm) { return ncclCommInitRankConfig(&comm, size(), id, rank_, &config); });
  if (!result) ThrowFailed(kConnect);
  Settle(kConnect, *result);
  connected_ = true;
}

ncclUniqueId NcclGroup::UniqueId() {
  ncclUniqueId id;
  if (rank_ == 0) {
    if (const ncclResult_t result = ncclGetUniqueId(&id); result != ncclSuccess) ThrowBroken(kConnect, result);
    if (size() > 1) Leave("id", std::string(id.internal, sizeof id.internal));
    return id;
  }
  Leave(std::to_string(rank_), "here");
  const std::string bytes = Await("id", 0);
  if (bytes.size() != sizeof id.internal) throw RuntimeError("rendezvous: " + prefix_ + "id is no NCCL unique id");
  std::memcpy(id.internal, bytes.data(), bytes.size());
  return id;
}

void NcclGroup::Leave(const std::string& key, const std::string& value) { world_->store().Set(prefix_ + key, value); }

std::string NcclGroup::Await(const std::string& key, int place) {
  const auto deadline = steady_clock::now() + world_->options().timeout;
  for (;;) {
    if (world_->failed()) ThrowFailed(kConnect);
    const auto begin = steady_clock::now();
    const auto wait = std::clamp(std::chrono::ceil<milliseconds>(deadline - begin), milliseconds(1), kStoreWait);
    try {
      return world_->store().Get(prefix_ + key, wait);
    } catch (const RuntimeError&) {
      if (steady_clock::now() - begin < wait / 2) throw;  // no time-out: the store itself failed
    }
    if (steady_clock::now() >= deadline) world_->Fail(Rank(ranks_[place]) + NotWithin(world_->options().timeout));
  }
}

std::string NcclGroup::Absent() {
  constexpr auto kLook = std::chrono::seconds(1);
  const auto deadline = steady_clock::now() + kLook;
  std::string absent;
  for (int r = 1; r < size() && steady_clock::now() < deadline; ++r) {  // rank 0 gave the id
    try {
      world_->store().Get(prefix_ + std::to_string(r), milliseconds(10));
    } catch (const RuntimeError&) {
      absent += (absent.empty() ? "" : ", ") + Rank(ranks_[r]);
    }
  }
  return absent.empty() ? "some rank" : absent;
}

void NcclGroup::Run(const Operation& operation, const Enqueue& enqueue) {
  if (world_->failed()) ThrowFailed(operation.str());
  uint32_t number;
  {
    std::lock_guard lock(mutex_);
    while (!pending_.empty() && stream_.Past(pending_.front().number)) pending_.pop_front();
    number = ++calls_;
    pending_.push_back({number, operation});
  }
  const auto result = handle_.Call([&](ncclComm_t& comm) { return enqueue(comm, stream_.get()); });
  if (!result) ThrowFailed(operation.str());
  Settle(operation.str(), *result);
  stream_.Mark(number);
}

void NcclGroup::Settle(const std::string& what, ncclResult_t result) {
  const auto deadline = steady_clock::now() + world_->options().timeout;
  for (int round = 0; result == ncclInProgress; ++round) {
    Pause(round);
    if (steady_clock::now() > deadline)
      world_->Fail((connected_ ? "some rank" : Absent()) + NotWithin(world_->options().timeout));
    CheckLeft();
    const auto state = handle_.State();
    if (!state) ThrowFailed(what);
    result = *state;
  }
  if (result != ncclSuccess) ThrowBroken(what, result);
}

void NcclGroup::Check() {
  if (world_->failed()) ThrowFailed("");
  CheckLeft();
  const auto state = handle_.State();
  if (!state) ThrowFailed("");
  if (*state != ncclSuccess && *state != ncclInProgress) ThrowBroken("", *state);
}

void NcclGroup::CheckLeft() {
  const int rank = world_->Left(ranks_);
  if (rank < 0) return;
  std::unique_lock lock(mutex_);
  const bool waiting = !connected_ || !Oldest().empty();
  lock.unlock();
  if (waiting) world_->Fail(Rank(rank) + " left the group");
}

void NcclGroup::Abort(const std::string& reason) noexcept {
  world_->Fail(Rank(world_->options().rank) + " aborted: " + reason);
}

std::string NcclGroup::Oldest() {
  const auto waits = [this](const Pending& call) { return !stream_.Past(call.number); };
  const auto oldest = std::find_if(pending_.begin(), pending_.end(), waits);
  return oldest == pending_.end() ? "" : oldest->operation.str();
}

std::string NcclGroup::Interrupt(const std::string& reason) noexcept {
  std::unique_lock lock(mutex_);
  interrupted_ = Oldest();
  const std::string call = interrupted_.empty() ? "" : CommunicatorMessage(name_, rank_, size(), interrupted_, reason);
  lock.unlock();
  handle_.Abort();
  return call;
}

void NcclGroup::ThrowBroken(const std::string& what, ncclResult_t result) {
  const std::string why = Explain(result);
  world_->AwaitFailure(kCause);
  world_->Fail(why);
  ThrowFailed(what);
}

void NcclGroup::ThrowFailed(const std::string& what) {
  world_->AwaitFailure(kDrain);
  std::unique_lock lock(mutex_);
  const std::string call = interrupted_.empty() ? what : interrupted_;
  lock.unlock();
  const std::string elsewhere = world_->interrupted();
  if (call.empty() && !elsewhere.empty()) throw CommunicatorAborted(elsewhere);
  throw CommunicatorAborted(
      CommunicatorMessage(name_, rank_, size(), call.empty() ? "between calls" : call, world_->reason()));
}

}  // namespace ds
