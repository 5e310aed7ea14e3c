// What a run tells: its directory, the screen, its last words.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "launcher/job/job.h"
#include "launcher/screen/screen.h"
#include "runtime/base/error.h"
#include "runtime/run/outcome.h"
#include "runtime/run/run_directory.h"
#include "runtime/run/run_record.h"

namespace ds {

class RunOutput {
 public:
  /// Makes the run directory. Throws UsageError where it cannot be made. `cannot_write` is told, once, why the
  /// directory cannot be written any more.
  RunOutput(const Job& job, std::function<void(const std::string& why)> cannot_write);

  RunDirectory& directory() { return directory_; }
  const RunDirectory& directory() const { return directory_; }
  Screen& screen() { return *screen_; }
  RunRecord& record() { return record_; }

  /// From now on events are of this attempt; how the attempt before ended is not how this one does.
  void BeginAttempt(int64_t attempt);
  /// The next attempt has other ranks.
  void Relayout(const Job& job);

  /// An event: in events.jsonl and on the screen.
  void Record(const std::string& kind, const std::string& host, int rank, const std::string& text);
  void Record(const std::string& kind, const std::string& host, int rank, const std::string& text, int64_t attempt);
  /// In events.jsonl alone.
  void RecordQuietly(const std::string& kind, const std::string& host, int rank, const std::string& text);
  void RecordQuietly(const std::string& kind, const std::string& host, int rank, const std::string& text,
                     int64_t attempt);
  /// A line that a rank wrote; on the screen where `shown`.
  void Line(int rank, bool error_stream, const std::string& line, bool shown);

  /// A run whose files cannot be written ends: it would lose what it is run for.
  template <class Body>
  void Guarded(Body body) {
    try {
      body();
    } catch (const Error& error) {
      if (!std::exchange(files_fail_, true)) cannot_write_(error.what());
    }
  }

  /// Writes how the run ended. Returns the exit code: the job's, but a run whose end cannot be written has not
  /// completed.
  int WriteEnd(const Job& job, const JobOutcome& outcome);
  /// The last words on the screen.
  void TellEnd(const Job& job, const JobOutcome& outcome, int code);

 private:
  template <class Body>
  void WriteLast(Body body);

  std::function<void(const std::string&)> cannot_write_;
  RunDirectory directory_;
  std::unique_ptr<Screen> screen_;
  RunRecord record_;
  int64_t attempt_ = 0;
  std::map<int, std::deque<std::string>> last_lines_;  ///< by rank
  bool files_fail_ = false;
  std::string end_trouble_;  ///< what of the run's end could not be written, and why
};

}  // namespace ds
