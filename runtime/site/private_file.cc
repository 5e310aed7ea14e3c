#include "runtime/site/private_file.h"

#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "runtime/base/error.h"

namespace ds {
namespace {

namespace fs = std::filesystem;
constexpr size_t kMostBytes = 1 << 20;

std::string UserName(uid_t uid) {
  const passwd* entry = ::getpwuid(uid);
  return entry ? std::string(entry->pw_name) : "user id " + std::to_string(uid);
}

std::string Octal(mode_t mode) {
  char text[8];
  std::snprintf(text, sizeof text, "%04o", mode & 07777);
  return text;
}

void CheckOwner(const struct stat& info, const fs::path& path) {
  if (info.st_uid == ::geteuid() || info.st_uid == 0) return;
  throw UsageError(path.string() + ": it belongs to " + UserName(info.st_uid) + ", not to " + UserName(::geteuid()) +
                   " or root: whoever owns it decides whom this program trusts; make a file of your own");
}

void CheckFolder(const fs::path& path) {
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  struct stat info {};
  if (::stat(folder.c_str(), &info) != 0) throw UsageError(folder.string() + ": " + std::strerror(errno));
  CheckOwner(info, folder);
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) && !(info.st_mode & S_ISVTX)) {
    throw UsageError(folder.string() + ": its mode is " + Octal(info.st_mode) + ": others may replace " +
                     path.filename().string() + " in it; chmod go-w " + folder.string());
  }
}

}  // namespace

std::string ReadGuardedFile(const fs::path& path, Guard guard) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) throw UsageError("cannot read " + path.string() + ": " + std::strerror(errno));
  struct Closer {
    int fd;
    ~Closer() { ::close(fd); }
  } closer{fd};
  struct stat info {};  // of what was opened, whatever the name means a moment later
  if (::fstat(fd, &info) != 0) throw UsageError(path.string() + ": " + std::strerror(errno));
  if (!S_ISREG(info.st_mode)) throw UsageError(path.string() + ": not a regular file");
  CheckOwner(info, path);
  const mode_t forbidden = guard == Guard::secret ? (S_IRWXG | S_IRWXO) : (S_IWGRP | S_IWOTH);
  if (info.st_mode & forbidden) {
    throw UsageError(path.string() + ": its mode is " + Octal(info.st_mode) + ": others may " +
                     (guard == Guard::secret ? "read or write it; chmod 600 " : "write it; chmod go-w ") +
                     path.string());
  }
  CheckFolder(path);
  std::string text;
  char block[16384];
  for (ssize_t n; (n = ::read(fd, block, sizeof block)) != 0;) {
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw UsageError("cannot read " + path.string() + ": " + std::strerror(errno));
    text.append(block, static_cast<size_t>(n));
    if (text.size() > kMostBytes) throw UsageError(path.string() + ": longer than 1 MiB: not a file of this kind");
  }
  ::explicit_bzero(block, sizeof block);
  return text;
}

}  // namespace ds
