#include "runtime/run/output_folder.h"

#include <pwd.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "runtime/base/error.h"

namespace ds {
namespace {

namespace fs = std::filesystem;

std::string UserName(uid_t uid) {
  const passwd* entry = ::getpwuid(uid);
  return entry ? std::string(entry->pw_name) : "user id " + std::to_string(uid);
}

bool EverybodyMayWrite(const struct stat& info) { return (info.st_mode & S_IWOTH) != 0; }
/// Everybody may add to it, and take away only what is his own.
bool Sticky(const struct stat& info) { return (info.st_mode & S_ISVTX) != 0; }

class Checker {
 public:
  explicit Checker(uid_t user) : user_(user) {}

  bool Trusted(const struct stat& info) const { return info.st_uid == user_ || info.st_uid == 0; }

  /// A link that anybody could have put there leads where its owner wants.
  void Link(const fs::path& path, const struct stat& link, const struct stat& folder) const {
    if (Trusted(link) || !EverybodyMayWrite(folder)) return;
    throw UsageError(path.string() + ": a symbolic link of " + UserName(link.st_uid) + " in a folder that everybody " +
                     "may write: it leads where its owner wants; choose another --output or job.name");
  }

  /// Every component of `path` (absolute, without dots) as far as it exists.
  void Links(const fs::path& path) const {
    fs::path folder = path.root_path(), current = folder;
    for (const fs::path& part : path.relative_path()) {
      current /= part;
      struct stat above {
      }, info{};
      if (::stat(folder.c_str(), &above) != 0 || ::lstat(current.c_str(), &info) != 0) return;
      if (S_ISLNK(info.st_mode)) Link(current, info, above);
      folder = current;
    }
  }

  /// Of a folder that exists; what it is.
  static struct stat Folder(const fs::path& path) {
    struct stat info {};
    if (::stat(path.c_str(), &info) != 0) throw UsageError(path.string() + ": " + std::strerror(errno));
    if (!S_ISDIR(info.st_mode)) throw UsageError(path.string() + ": exists and is not a folder");
    return info;
  }

  struct stat Output(const fs::path& path) const {
    struct stat info = Folder(path);
    if (!EverybodyMayWrite(info)) return info;
    if (!Sticky(info)) {
      throw UsageError(path.string() + ": everybody may write it, and replace what is in it: chmod +t or o-w " +
                       path.string() + ", or choose a folder of your own below it, as --output " +
                       (path / "runs").string());
    }
    if (!Trusted(info)) {
      throw UsageError(path.string() + ": it belongs to " + UserName(info.st_uid) +
                       ", and everybody may write it: its " +
                       "owner may replace what is in it; choose another --output");
    }
    return info;
  }

  void Name(const fs::path& path, const struct stat& output) const {
    struct stat link {};
    if (::lstat(path.c_str(), &link) == 0 && S_ISLNK(link.st_mode)) Link(path, link, output);
    const struct stat info = Folder(path);
    if (EverybodyMayWrite(info)) {
      throw UsageError(path.string() + ": everybody may write it, and replace runs in it: chmod o-w " + path.string() +
                       ", or choose another --output or job.name");
    }
    if (!Trusted(info) && EverybodyMayWrite(output)) {
      throw UsageError(path.string() + ": it belongs to " + UserName(info.st_uid) + ", who may replace runs in it; " +
                       "choose another --output or job.name");
    }
  }

 private:
  uid_t user_;
};

/// Never open to everybody, whatever the umask.
void MakeFolder(const fs::path& path) {
  if (::mkdir(path.c_str(), 0775) != 0 && errno != EEXIST) throw SystemError("cannot make " + path.string(), errno);
}

void MakeFolders(const fs::path& path) {
  fs::path current = path.root_path();
  for (const fs::path& part : path.relative_path()) {
    current /= part;
    struct stat info {};
    if (::stat(current.c_str(), &info) != 0) MakeFolder(current);
  }
}

}  // namespace

fs::path PrepareOutputFolder(const fs::path& output, const std::string& name, uid_t user) {
  const Checker check(user);
  const fs::path parent = fs::absolute(output).lexically_normal(), folder = parent / name;
  check.Links(parent);
  MakeFolders(parent);
  check.Links(parent);  // what came about meanwhile
  const struct stat above = check.Output(parent);
  MakeFolder(folder);
  check.Name(folder, above);
  struct stat latest {};
  if (::lstat((folder / "latest").c_str(), &latest) == 0 && !S_ISLNK(latest.st_mode)) {
    throw UsageError((folder / "latest").string() +
                     ": exists and is no symbolic link, which it is to become: move it " +
                     "away, or choose another --output or job.name");
  }
  return folder;
}

}  // namespace ds
