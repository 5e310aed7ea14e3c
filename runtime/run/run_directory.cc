#include "runtime/run/run_directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "runtime/base/clock.h"
#include "runtime/base/error.h"
#include "runtime/base/json.h"
#include "runtime/base/random.h"
#include "runtime/run/output_folder.h"

namespace ds {

namespace fs = std::filesystem;

namespace {

constexpr off_t kLastRoom = 256 << 10;  // for the summary, the last events and lines

}  // namespace

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
  struct stat made {};
  if (::stat(path_.c_str(), &made) != 0) throw SystemError("cannot stat " + path_.string(), errno);
  device_ = made.st_dev;
  inode_ = made.st_ino;
  room_ = std::make_unique<Room>(path_ / ".room");
  ReplaceSymlink(run_id_, parent / "latest");
}

RunDirectory::Room::Room(const fs::path& path) {
  fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return;
  ::unlink(path.c_str());
  if (::posix_fallocate(fd, 0, kLastRoom) != 0) ::close(std::exchange(fd, -1));
}

RunDirectory::Room::~Room() {
  if (fd >= 0) ::close(fd);
}

void RunDirectory::UseLastRoom() { room_.reset(); }

void RunDirectory::CheckThere() const {
  struct stat now {};
  const auto gone = [](const fs::path& path) {
    throw RuntimeError(path.string() + " was removed or moved while the job ran: what it wrote there is lost");
  };
  // Other failures (a server that does not answer) say nothing of what is there.
  if (::stat(path_.c_str(), &now) != 0) {
    if (errno == ENOENT || errno == ESTALE || errno == ENOTDIR) gone(path_);
  } else if (now.st_dev != device_ || now.st_ino != inode_) {
    gone(path_);
  }
  for (const char* name : {"metrics.jsonl", "events.jsonl"}) {
    if (::stat((path_ / name).c_str(), &now) != 0 && errno == ENOENT) gone(path_ / name);
  }
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
