#include "runtime/worker/standalone/file_board.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <sstream>
#include <thread>

#include "runtime/base/clock.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/random.h"
#include "runtime/base/text.h"

namespace ds {
namespace {

namespace fs = std::filesystem;

constexpr auto kPoll = std::chrono::milliseconds(10);

/// Whether it is a folder of this user's that nobody else may enter.
bool OursAlone(const fs::path& folder) {
  struct stat info {};
  return ::lstat(folder.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == ::geteuid() &&
         (info.st_mode & 077) == 0;
}

double Seconds(std::chrono::milliseconds time) { return static_cast<double>(time.count()) * 1e-3; }

}  // namespace

FileBoard::FileBoard(fs::path folder, bool make, std::chrono::milliseconds timeout) : folder_(std::move(folder)) {
  if (make) {
    MakeDirectories(folder_.parent_path());
    if (OursAlone(folder_)) Remove();
    if (::mkdir(folder_.c_str(), 0700) != 0) throw SystemError("cannot make the folder " + folder_.string(), errno);
    return;
  }
  const auto until = std::chrono::steady_clock::now() + timeout;
  while (!OursAlone(folder_)) {
    if (std::chrono::steady_clock::now() >= until) {
      throw RuntimeError("rank 0 did not make " + folder_.string() + " within " + DurationText(Seconds(timeout)) +
                         ": is --output on a file system that all nodes share?");
    }
    std::this_thread::sleep_for(kPoll);
  }
}

void FileBoard::Remove() noexcept {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

fs::path FileBoard::PathOf(const std::string& key) const {
  std::string name = "v";
  for (unsigned char c : key) {
    name += "0123456789abcdef"[c >> 4];
    name += "0123456789abcdef"[c & 15];
  }
  return folder_ / name;
}

void FileBoard::Set(const std::string& key, const std::string& value) {
  const fs::path path = PathOf(key), temporary = folder_ / ("t" + RandomHex(8));
  std::ofstream file(temporary, std::ios::binary);
  file << value;
  file.close();
  if (!file || ::rename(temporary.c_str(), path.c_str()) != 0)
    throw SystemError("rendezvous: cannot write " + path.string(), errno);
}

bool FileBoard::Find(const std::string& key, std::string& value) {
  // A network file system may remember that a file was not there: reading the folder makes it look again.
  if (DIR* folder = ::opendir(folder_.c_str())) ::closedir(folder);
  std::ifstream file(PathOf(key), std::ios::binary);
  if (!file) return false;
  std::ostringstream text;
  text << file.rdbuf();
  value = text.str();
  return true;
}

std::string FileBoard::Get(const std::string& key, std::chrono::milliseconds timeout) {
  const auto until = std::chrono::steady_clock::now() + timeout;
  std::string value;
  while (!Find(key, value)) {
    if (std::chrono::steady_clock::now() >= until)
      throw RuntimeError("rendezvous: nobody left " + key + " within " + DurationText(Seconds(timeout)));
    std::this_thread::sleep_for(kPoll);
  }
  return value;
}

}  // namespace ds
