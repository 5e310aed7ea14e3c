#include "runtime/run/run_directory.h"

#include <sys/stat.h>

#include <cerrno>

#include "runtime/base/clock.h"
#include "runtime/base/error.h"
#include "runtime/base/json.h"
#include "runtime/base/random.h"
#include "runtime/run/output_folder.h"

namespace ds {

namespace fs = std::filesystem;

RunDirectory::RunDirectory(const fs::path& output, const std::string& name) {
  const fs::path parent = PrepareOutputFolder(output, name);
  for (int tries = 0;; ++tries) {
    run_id_ = CompactUtcTime(UnixNanoseconds()) + "-" + RandomHex(3);
    path_ = parent / run_id_;
    if (::mkdir(path_.c_str(), 0775) == 0) break;  // never what somebody else put there
    if (errno != EEXIST || tries == 10) throw SystemError("cannot make the run directory " + path_.string(), errno);
  }
  for (const char* folder : {"plan", "report", "logs", "checkpoints"}) {
    const fs::path inside = path_ / folder;
    if (::mkdir(inside.c_str(), 0775) != 0) throw SystemError("cannot make " + inside.string(), errno);
  }
  metrics_ = std::make_unique<LineFile>(path_ / "metrics.jsonl");
  events_ = std::make_unique<LineFile>(path_ / "events.jsonl");
  ReplaceSymlink(run_id_, parent / "latest");
}

void RunDirectory::Write(const std::string& relative, std::string_view text) {
  MakeDirectories((path_ / relative).parent_path());
  WriteFileAtomically(path_ / relative, text);
}

void RunDirectory::CreateLogs(int ranks, const RankSet& kept, LogRotation rotation) {
  logged_ = kept;
  rotation_ = rotation;
  for (int rank = 0; rank < ranks; ++rank) {
    if (logged_.Has(rank)) LineFile(path_ / "logs" / ("rank-" + std::to_string(rank) + ".log"));
  }
}

void RunDirectory::Metric(std::string_view json_line) { metrics_->Append(json_line); }

void RunDirectory::Event(int64_t unix_ns, const std::string& host, int rank, int64_t attempt, const std::string& kind,
                         const std::string& message) {
  JsonWriter json;
  json.BeginObject().Field("time", IsoTime(unix_ns));
  host.empty() ? json.Key("host").Null() : json.Field("host", host);
  rank < 0 ? json.Key("rank").Null() : json.Field("rank", rank);
  json.Field("attempt", attempt).Field("event", kind).Field("message", message).EndObject();
  events_->Append(json.str());
}

void RunDirectory::Log(int rank, std::string_view line) {
  if (!logged_.Has(rank)) return;
  std::unique_ptr<RotatingLog>& log = logs_[rank];
  const std::string name = "rank-" + std::to_string(rank) + ".log";
  if (!log) log = std::make_unique<RotatingLog>(path_ / "logs" / name, rotation_);
  log->Append(line);
}

}  // namespace ds
