#include "runtime/worker/link_reporter.h"

#include <utility>

namespace ds {
namespace {

constexpr auto kEvery = std::chrono::seconds(1);

}  // namespace

LinkReporter::LinkReporter(AgentLink& link, const std::atomic<bool>& stop) : link_(link), stop_(stop) {
  status_.state = "starting";
  thread_ = std::thread([this] { Run(); });
}

LinkReporter::~LinkReporter() {
  {
    std::lock_guard lock(mutex_);
    end_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void LinkReporter::OnState(const std::string& state) {
  std::lock_guard lock(mutex_);
  status_.state = state;
  progress_at_ = std::chrono::steady_clock::now();
}

void LinkReporter::OnStep(const StepRecord& record) {
  std::lock_guard lock(mutex_);
  progress_at_ = std::chrono::steady_clock::now();
  const bool first = std::exchange(stepped_, true) == false;
  status_.step = record.step;
  status_.tokens_per_second = record.tokens_per_second;
  status_.comm_exposed_ms = record.comm_exposed_ms;
  if (link_.assignment().rank != 0) return;
  steps_.push_back(record);
  if (!first && !record.checkpoint_stall_ms && waiting_.empty()) return;
  send_now_ = true;
  wake_.notify_all();
}

/// Steps that were done before an event come before it. A checkpoint is told when it is written, a moment before its
/// step is: it waits for that, or for the next status.
void LinkReporter::OnEvent(const std::string& kind, const std::string& message) {
  std::lock_guard lock(mutex_);
  waiting_.emplace_back(kind, message);
  if (kind != "checkpoint") Send();
}

void LinkReporter::Run() {
  std::unique_lock lock(mutex_);
  bool last = false;
  while (!last) {
    last = end_;
    Send();
    if (!last) wake_.wait_for(lock, kEvery, [&] { return end_ || send_now_; });
    send_now_ = false;
  }
}

void LinkReporter::Send() {
  WorkerStatus status = status_;
  status.activity = CurrentActivity();
  status.since_progress_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - progress_at_).count();
  std::vector<StepRecord> steps = std::exchange(steps_, {});
  link_.SendStatus(status, steps);
  for (const auto& [kind, message] : std::exchange(waiting_, {})) link_.SendEvent(kind, message);
}

}  // namespace ds
