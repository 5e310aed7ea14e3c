#include "runtime/base/activity.h"

#include <atomic>
#include <mutex>
#include <utility>

namespace ds {
namespace {

/// What a stream's thread does. `waits` counts, since a call that waits may make another.
struct Place {
  std::atomic<int64_t> index{-1};  ///< -1: no action
  std::atomic<int> waits{0};
};

Place streams[kActivityStreams];
std::atomic<int> waits_elsewhere{0};  ///< threads that wait for peers outside a plan: the training loop's

/// The stream whose action the calling thread runs; null: none.
thread_local Place* own = nullptr;

std::mutex describe_mutex;
std::function<std::string(size_t)> describe_action;

}  // namespace

Activity CurrentActivity() {
  int64_t first = -1, first_waiting = -1;
  for (const Place& stream : streams) {
    const int64_t index = stream.index;
    if (index < 0) continue;
    int64_t& lowest = stream.waits > 0 ? first_waiting : first;
    if (lowest < 0 || index < lowest) lowest = index;
  }
  Activity activity;
  const int64_t chosen = first >= 0 ? first : first_waiting;
  if (chosen < 0) {
    activity.waits = waits_elsewhere > 0;
    return activity;
  }
  activity.waits = first < 0;
  activity.index = static_cast<uint32_t>(chosen);
  std::lock_guard lock(describe_mutex);
  if (describe_action) activity.action = describe_action(static_cast<size_t>(chosen));
  return activity;
}

RunningPlan::RunningPlan(std::function<std::string(size_t)> describe) {
  std::lock_guard lock(describe_mutex);
  describe_action = std::move(describe);
}

RunningPlan::~RunningPlan() {
  std::lock_guard lock(describe_mutex);
  describe_action = nullptr;
}

RunningAction::RunningAction(int stream, size_t index) noexcept {
  own = &streams[stream];
  own->waits = 0;
  own->index = static_cast<int64_t>(index);
}

RunningAction::~RunningAction() {
  own->index = -1;
  own = nullptr;
}

WaitsForPeers::WaitsForPeers() noexcept { ++(own ? own->waits : waits_elsewhere); }
WaitsForPeers::~WaitsForPeers() { --(own ? own->waits : waits_elsewhere); }

}  // namespace ds
