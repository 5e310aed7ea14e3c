#include "launcher/run/run_output.h"

#include <exception>
#include <filesystem>
#include <utility>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/text.h"

namespace ds {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLastLines = 20;          // of each rank, for the final report
constexpr size_t kLongestLastLine = 2000;  // bytes

ScreenJob ScreenJobOf(const Job& job, const RunDirectory& directory) {
  ScreenJob screen;
  screen.name = job.spec.name;
  screen.run_directory = directory.path().string();
  for (const RankEntry& rank : job.ranks) {
    screen.rank_hosts.push_back(job.hosts[static_cast<size_t>(rank.node)].host);
  }
  screen.steps = job.foreign() ? 0 : job.spec.training.steps;
  screen.log_every = job.spec.training.log_every;
  return screen;
}

RunDirectory MakeRunDirectory(const Job& job) {
  const fs::path output = (fs::path(job.working_directory) / job.options.output).lexically_normal();
  if (RepairUtf8(output.string()) != output.string())
    throw UsageError("--output " + Shown(output.string()) +
                     ": its path is not UTF-8, and JSON files name it; choose another");
  if (Shown(output.string(), output.string().size()) != output.string())
    throw UsageError("--output " + Shown(output.string(), 400) +
                     ": its path has a control character (a newline, say), and lines of logs name it; choose another");
  try {
    return RunDirectory(job.options.output, job.spec.name);
  } catch (const std::exception& error) {  // std::filesystem's too: the working directory may be gone
    throw UsageError("--output " + job.options.output + ": " + error.what() + "; choose a folder that can be written");
  }
}

}  // namespace

RunOutput::RunOutput(const Job& job, std::function<void(const std::string& why)> cannot_write)
    : cannot_write_(std::move(cannot_write)),
      directory_(MakeRunDirectory(job)),
      screen_(MakeScreen(ScreenJobOf(job, directory_))) {}

void RunOutput::BeginAttempt(int64_t attempt) {
  attempt_ = attempt;
  last_lines_.clear();
}

void RunOutput::Relayout(const Job& job) { screen_->Relayout(ScreenJobOf(job, directory_)); }

void RunOutput::Record(const std::string& kind, const std::string& host, int rank, const std::string& text) {
  Record(kind, host, rank, text, attempt_);
}

void RunOutput::Record(const std::string& kind, const std::string& host, int rank, const std::string& text,
                       int64_t attempt) {
  RecordQuietly(kind, host, rank, text, attempt);
  if (kind != "start") screen_->Notice(kind + ": " + text);
}

void RunOutput::RecordQuietly(const std::string& kind, const std::string& host, int rank, const std::string& text) {
  RecordQuietly(kind, host, rank, text, attempt_);
}

void RunOutput::RecordQuietly(const std::string& kind, const std::string& host, int rank, const std::string& text,
                              int64_t attempt) {
  if (!files_fail_) Guarded([&] { directory_.Event(UnixNanoseconds(), host, rank, attempt, kind, text); });
}

void RunOutput::Line(int rank, bool error_stream, const std::string& line, bool shown) {
  directory_.Log(rank, line);
  std::deque<std::string>& last = last_lines_[rank];
  last.push_back(line);
  if (last.size() > kLastLines) last.pop_front();
  if (shown) screen_->Line(rank, error_stream, line);
}

/// When nothing is left to end: what of the run cannot be written is told at the end, and the rest is still tried.
template <class Body>
void RunOutput::WriteLast(Body body) {
  try {
    body();
  } catch (const Error& error) {
    end_trouble_ += std::string(end_trouble_.empty() ? "" : "; ") + error.what();
  }
}

int RunOutput::WriteEnd(const Job& job, const JobOutcome& outcome) {
  directory_.UseLastRoom();
  std::string summary = record_.Summary({job.spec, job.world(), job.parent}, outcome, attempt_);
  WriteLast([&] { directory_.CheckThere(); });
  if (!end_trouble_.empty()) return outcome.exit_code != 0 ? outcome.exit_code : static_cast<int>(ExitCode::failure);
  WriteLast([&] {
    directory_.Event(UnixNanoseconds(), "", -1, attempt_, "end",
                     outcome.status + (outcome.cause ? ": " + outcome.cause->message : ""));
  });
  WriteLast([&] { directory_.Write("summary.json", summary + "\n"); });
  return end_trouble_.empty() || outcome.exit_code != 0 ? outcome.exit_code : static_cast<int>(ExitCode::failure);
}

void RunOutput::TellEnd(const Job& job, const JobOutcome& outcome, int code) {
  const bool told = outcome.cause && outcome.cause->message.find(end_trouble_) != std::string::npos;
  if (!end_trouble_.empty() && !told) LogError("the run directory cannot be written: " + end_trouble_);
  const bool failed = outcome.status == "failed" || code != outcome.exit_code;
  std::string text = (failed ? "failed" : outcome.status) + " (exit code " + std::to_string(code) + ")";
  if (outcome.cause) text += ": " + outcome.cause->message;
  if (code != outcome.exit_code)
    text +=
        ": it " + outcome.status + ", but its end is in no file; run it again, from its checkpoint where there is one";
  LogLevel level = failed ? LogLevel::error : LogLevel::info;
  if (outcome.cause && outcome.cause->rank >= 0 && !last_lines_[outcome.cause->rank].empty()) {
    text += "\n  last lines of rank " + std::to_string(outcome.cause->rank) + " on " + outcome.cause->host + ":";
    for (const std::string& line : last_lines_[outcome.cause->rank]) {
      text += "\n    " + Shown(TerminalLine(line, /*color=*/false), kLongestLastLine);
    }
  }
  for (const WorkerEnd& victim : outcome.victims) {
    text += "\n  rank " + std::to_string(victim.rank) + " ended because of it" +
            (victim.message.empty() ? "" : ": " + victim.message);
  }
  Log(level, job.spec.name + " " + text + "\n  run directory: " + directory_.path().string());
}

}  // namespace ds
