// The run directory: OUTPUT/NAME/RUN-ID and everything in it but the checkpoints, which workers write.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/base/file.h"
#include "runtime/run/rank_set.h"
#include "runtime/run/rotating_log.h"

namespace ds {

class RunDirectory {
 public:
  /// Makes OUTPUT/NAME/RUN-ID (RUN-ID: UTC time and a short random hash; never one that exists) and points
  /// OUTPUT/NAME/latest to it, where nobody else can put something in its stead (PrepareOutputFolder). Throws Error
  /// naming the path.
  RunDirectory(const std::filesystem::path& output, const std::string& name);

  const std::filesystem::path& path() const { return path_; }
  const std::string& run_id() const { return run_id_; }

  /// Whole files, by their path below the run directory; folders are made as needed.
  void Write(const std::string& relative, std::string_view text);

  /// An empty log a rank of those in `kept`, so that a silent rank has one too. Lines of the others go nowhere.
  void CreateLogs(int ranks, const RankSet& kept, LogRotation rotation);

  void Metric(std::string_view json_line);
  /// `rank` -1 and an empty host: null.
  void Event(int64_t unix_ns, const std::string& host, int rank, int64_t attempt, const std::string& kind,
             const std::string& message);
  void Log(int rank, std::string_view line);

  /// Throws RuntimeError where the directory, or what is written to it, is not there any more: somebody removed or
  /// moved it, and what is appended to it reaches nobody.
  void CheckThere() const;

  /// Gives back the disk space that the directory holds for the end of a run. Call it before the last files are
  /// written: a disk that others, or the run itself, have filled has room for them then.
  void UseLastRoom();

 private:
  /// A file without a name that holds some of the disk, and is gone with this process; fd -1: there was no room for it.
  struct Room {
    explicit Room(const std::filesystem::path& path);
    ~Room();
    Room(const Room&) = delete;
    Room& operator=(const Room&) = delete;
    int fd = -1;
  };

  std::filesystem::path path_;
  std::string run_id_;
  uint64_t device_ = 0, inode_ = 0;  ///< of `path_`
  std::unique_ptr<Room> room_;
  std::unique_ptr<LineFile> metrics_, events_;
  RankSet logged_;
  LogRotation rotation_;
  std::map<int, std::unique_ptr<RotatingLog>> logs_;
};

}  // namespace ds
