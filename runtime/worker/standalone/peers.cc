#include "runtime/worker/standalone/peers.h"

#include <charconv>
#include <sstream>

#include "runtime/comm/gloo_group.h"

namespace ds {
namespace {

constexpr char kTold = '\x01';  // begins a failure that a rank told; other reasons are of the connections

std::string ToText(const Cause& cause) {
  return std::string(1, kTold) + std::to_string(cause.rank) + " " + std::to_string(cause.code) + " " + cause.kind +
         "\n" + cause.message;
}

/// The rank in "the connection to rank 3 was lost: ..."; -1: another reason.
int LostRank(const std::string& reason) {
  constexpr std::string_view kBegin = "the connection to rank ";
  const size_t at = reason.find(kBegin);
  int rank = -1;
  if (at != std::string::npos) std::from_chars(reason.data() + at + kBegin.size(), reason.data() + reason.size(), rank);
  return rank;
}

}  // namespace

Peers::Peers(int rank, std::vector<std::string> hosts, const std::string& interface_address, Store& store,
             std::chrono::milliseconds timeout, std::function<void()> on_failure)
    : hosts_(std::move(hosts)), on_failure_(std::move(on_failure)) {
  if (hosts_.size() < 2) return;
  group_ = std::make_unique<GlooGroup>("job", rank, static_cast<int>(hosts_.size()), GlooDevice(interface_address),
                                       store, "job/", timeout,
                                       GlooGroup::Observer{[this](const std::string& reason) { Failed(reason); }, {}});
}

Peers::~Peers() = default;

void Peers::Failed(const std::string& reason) {
  Cause cause;
  if (!reason.empty() && reason[0] == kTold) {
    std::istringstream text(reason.substr(1));
    text >> cause.rank >> cause.code >> cause.kind;
    const size_t end = reason.find('\n');
    cause.message = end == std::string::npos ? "" : reason.substr(end + 1);
  } else {
    cause.rank = LostRank(reason);
    cause.kind = "worker_lost";
    cause.code = kVictimExitCode;
    cause.message = reason;
  }
  if (cause.rank >= 0 && cause.rank < static_cast<int>(hosts_.size())) {
    cause.host = hosts_[static_cast<size_t>(cause.rank)];
    if (cause.kind == "worker_lost")
      cause.message = "rank " + std::to_string(cause.rank) + " on " + cause.host +
                      " was lost: killed, or its node is gone (" + reason + ")";
  } else {
    cause.rank = -1;
  }
  {
    std::lock_guard lock(mutex_);
    if (!cause_) cause_ = cause;
    changed_.notify_all();
  }
  on_failure_();
}

void Peers::Tell(const Cause& cause) {
  {
    std::lock_guard lock(mutex_);
    if (!group_ && !cause_) cause_ = cause;
  }
  if (group_) group_->Fail(ToText(cause));
}

std::optional<Cause> Peers::Await(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, timeout, [this] { return cause_.has_value(); });
  return cause_;
}

std::vector<int64_t> Peers::Gather(int64_t own) {
  std::vector<int64_t> all(hosts_.size(), own);
  if (!group_) return all;
  const Operation operation{Collective::all_gather, DType::i64, 1, -1};
  std::vector<GlooGroup::Route> routes;
  for (int peer = 0; peer < group_->size(); ++peer) {
    if (peer == group_->rank()) continue;
    routes.push_back({peer, Tensor::Of(&own, Shape{1}), Tensor::Of(&all[static_cast<size_t>(peer)], Shape{1})});
  }
  group_->Exchange(operation, routes);
  return all;
}

}  // namespace ds
