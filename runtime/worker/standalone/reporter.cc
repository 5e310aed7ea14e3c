#include "runtime/worker/standalone/reporter.h"

#include <cstdio>

#include "proto/deepshard.pb.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/text.h"
#include "runtime/comm/store.h"
#include "runtime/run/step_line.h"
#include "runtime/worker/messages.h"

namespace ds {
namespace {

namespace pb = ::deepshard::v1;

constexpr auto kLookEvery = std::chrono::seconds(1);

std::string EventKey(int rank, int number) { return "event/" + std::to_string(rank) + "/" + std::to_string(number); }

}  // namespace

StandaloneReporter::StandaloneReporter(Job job, RunDirectory* directory, Board* board, const std::atomic<bool>& stop)
    : job_(std::move(job)), directory_(directory), board_(board), stop_(stop), taken_(job_.hosts.size()) {}

void StandaloneReporter::OnState(const std::string& state) {
  LogDebug("rank " + std::to_string(job_.rank) + ": " + state);
}

void StandaloneReporter::OnStep(const StepRecord& step) {
  pb::StepRecord message;
  Fill(step, message);
  record_.Add(message);
  if (!directory_) return;
  directory_->Metric(MetricLine(message));
  const bool due = step.step == 1 || step.step == job_.steps || step.validation_loss ||
                   (job_.log_every > 0 && step.step % job_.log_every == 0);
  if (due) {
    std::printf("%s\n", StepLine(message, job_.steps, -1).c_str());
    std::fflush(stdout);
  }
  TellCheckpoint();
  const auto now = std::chrono::steady_clock::now();
  if (now - looked_ < kLookEvery) return;
  looked_ = now;
  TakeEvents();
}

void StandaloneReporter::OnEvent(const std::string& kind, const std::string& message) {
  if (directory_ && kind == "checkpoint") {
    TellCheckpoint();
    checkpoint_ = {UnixNanoseconds(), message};
    return;
  }
  if (directory_) return Write(job_.rank, UnixNanoseconds(), kind, message);
  if (!board_) return;
  pb::Event event;
  event.set_unix_ns(UnixNanoseconds());
  event.set_rank(job_.rank);
  event.set_kind(kind);
  event.set_message(RepairUtf8(message));
  board_->Set(EventKey(job_.rank, sent_++), event.SerializeAsString());
}

void StandaloneReporter::TellCheckpoint() {
  const auto checkpoint = std::exchange(checkpoint_, std::nullopt);
  if (checkpoint) Write(job_.rank, checkpoint->first, "checkpoint", checkpoint->second);
}

void StandaloneReporter::TakeEvents() {
  if (!directory_ || !board_) return;
  for (int rank = 0; rank < static_cast<int>(taken_.size()); ++rank) {
    std::string text;
    while (rank != job_.rank && board_->Find(EventKey(rank, taken_[static_cast<size_t>(rank)]), text)) {
      ++taken_[static_cast<size_t>(rank)];
      pb::Event event;
      if (event.ParseFromString(text)) Write(rank, event.unix_ns(), event.kind(), event.message());
    }
  }
}

void StandaloneReporter::Write(int rank, int64_t unix_ns, const std::string& kind, const std::string& message) {
  directory_->Event(unix_ns, job_.hosts[static_cast<size_t>(rank)], rank, 1, kind, message);
  std::printf("%s: %s\n", kind.c_str(), message.c_str());
  std::fflush(stdout);
}

}  // namespace ds
