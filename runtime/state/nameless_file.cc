#include "runtime/state/nameless_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <system_error>
#include <utility>

#include "runtime/base/failpoint.h"
#include "runtime/plan/price.h"
#include "runtime/state/direct_alignment.h"
#include "runtime/state/host_memory.h"

namespace ds {
namespace {

constexpr char kPrefix[] = ".ds-nameless-";

const char* Advice(int error) {
  switch (error) {
    case ENOSPC:
      return "free space there, or name another folder";
    case EDQUOT:
      return "your quota there is used up: free space, have it raised, or name another folder";
    case EIO:
      return "the disk or its connection failed (the kernel's log says more): replace it, or name a folder of another";
    case EROFS:
      return "mount it writable, or name another folder";
    case ENOENT:
      return "make the folder on every node, or name one that is there";
    case ENOTDIR:
      return "name a folder";
    case EACCES:
    case EPERM:
      return "give this user the right to write there, or name another folder";
    case EFBIG:
      return "a file may not be that large: raise `ulimit -f`, or name more folders";
    case EMFILE:
    case ENFILE:
      return "raise `ulimit -n`";
    case ESTALE:
      return "the file server lost the folder: mount it anew";
    default:
      return "name another folder where this one cannot be mended";
  }
}

int64_t FreeBytes(int fd) {
  struct statvfs disk {};
  return ::fstatvfs(fd, &disk) == 0 ? static_cast<int64_t>(disk.f_bavail) * static_cast<int64_t>(disk.f_frsize) : 0;
}

RuntimeError TooSmall(const std::string& folder, const std::string& wanted_by, int64_t bytes, int64_t free) {
  return RuntimeError(folder + ": " + wanted_by + " wants " + FormatBytes(bytes) + " there, and " + FormatBytes(free) +
                      " are free for this user: free space, name another folder or more of them, or offload less");
}

/// Removes names whose makers were killed before they did. A maker that lives loses nothing by it.
void RemoveLeftovers(const std::string& folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(::opendir(folder.c_str()), ::closedir);
  if (!entries) return;
  while (const dirent* entry = ::readdir(entries.get())) {
    struct stat info {};
    if (std::string(entry->d_name).starts_with(kPrefix) &&
        ::fstatat(::dirfd(entries.get()), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(info.st_mode) &&
        info.st_uid == ::geteuid())
      ::unlinkat(::dirfd(entries.get()), entry->d_name, 0);
  }
}

}  // namespace

RuntimeError FolderError(const std::string& folder, const std::string& doing, int error) {
  return RuntimeError(folder + ": " + doing + ": " + std::generic_category().message(error) + "; " + Advice(error));
}

NamelessFile::NamelessFile(std::string folder) : folder_(std::move(folder)) {
  struct stat info {};
  if (::stat(folder_.c_str(), &info) != 0) throw FolderError(folder_, "cannot make a file", errno);
  if (!S_ISDIR(info.st_mode)) throw FolderError(folder_, "cannot make a file", ENOTDIR);
  errno = FailpointError("file_tier.tmpfile");
  if (errno == 0) fd_ = ::open(folder_.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  // EISDIR: a kernel that does not know the flag; ENOENT: some file systems.
  if (fd_ < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL || errno == ENOENT)) MakeNamed();
  if (fd_ < 0) throw FolderError(folder_, "cannot make a file", errno);
}

NamelessFile::~NamelessFile() {
  if (fd_ >= 0) ::close(fd_);
}

NamelessFile::NamelessFile(NamelessFile&& other) noexcept
    : folder_(std::move(other.folder_)),
      why_not_(std::move(other.why_not_)),
      fd_(std::exchange(other.fd_, -1)),
      direct_(other.direct_),
      memory_alignment_(other.memory_alignment_) {}

void NamelessFile::MakeNamed() {
  RemoveLeftovers(folder_);
  std::string name = folder_ + "/" + kPrefix + "XXXXXX";
  fd_ = ::mkostemp(name.data(), O_CLOEXEC);
  if (fd_ < 0) return;
  Failpoint("file_tier.unlink");
  if (::unlink(name.c_str()) == 0 || errno == ENOENT) return;
  const int error = errno;
  ::close(std::exchange(fd_, -1));
  throw FolderError(folder_, "cannot take the name of " + name + " away", error);
}

void NamelessFile::Reserve(int64_t bytes, const std::string& wanted_by) {
  if (bytes == 0) return;
  const int64_t free = FreeBytes(fd_);
  rlimit limit{};
  // Asked first: the system does not fail a call that goes beyond it, but ends the process by SIGXFSZ.
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < static_cast<rlim_t>(bytes))
    throw FolderError(folder_, wanted_by + " wants a file of " + FormatBytes(bytes), EFBIG);
  int error = FailpointError("file_tier.reserve");
  if (error == ENOSPC || (error == 0 && free < bytes)) throw TooSmall(folder_, wanted_by, bytes, free);
  if (error == 0) error = FailpointError("file_tier.fallocate");
  while (error == 0 && ::fallocate(fd_, 0, 0, bytes) != 0) {
    if (errno == EINTR) continue;
    error = errno;
  }
  if (error == EOPNOTSUPP || error == ENOSYS) return Fill(bytes, wanted_by, free);
  if (error == ENOSPC) throw TooSmall(folder_, wanted_by, bytes, free);
  if (error != 0) throw FolderError(folder_, wanted_by + " cannot reserve " + FormatBytes(bytes), error);
}

void NamelessFile::Fill(int64_t bytes, const std::string& wanted_by, int64_t free) const {
  const int64_t block = std::min<int64_t>(bytes, 1 << 20);
  const HostMemory zeros(block);
  for (int64_t at = 0; at < bytes;) {
    const ssize_t n = ::pwrite(fd_, zeros.Bytes(0, block).data, static_cast<size_t>(std::min(block, bytes - at)), at);
    if (n < 0 && errno == EINTR) continue;
    if (n == 0 || (n < 0 && errno == ENOSPC)) throw TooSmall(folder_, wanted_by, bytes, free);
    if (n < 0) throw FolderError(folder_, wanted_by + " cannot reserve " + FormatBytes(bytes) + " by writing", errno);
    at += n;
  }
}

bool NamelessFile::SetDirect() {
  struct statfs system {};
  if (::fstatfs(fd_, &system) == 0 && (system.f_type == TMPFS_MAGIC || system.f_type == RAMFS_MAGIC)) {
    why_not_ = "memory, not a disk (tmpfs)";
    return false;
  }
  int error = FailpointError("file_tier.direct");
  const int flags = error == 0 ? ::fcntl(fd_, F_GETFL) : 0;
  if (error == 0 && (flags < 0 || ::fcntl(fd_, F_SETFL, flags | O_DIRECT) != 0)) error = errno;
  if (error == 0) {  // some refuse the flag, others the first write with it
    const HostMemory zeros(kDirectAlignment);
    ssize_t n;
    do n = ::pwrite(fd_, zeros.Bytes(0, kDirectAlignment).data, kDirectAlignment, 0);
    while (n < 0 && errno == EINTR);
    if (n != kDirectAlignment) error = n < 0 ? errno : EINVAL;
    if (error != 0 && ::fcntl(fd_, F_SETFL, flags) != 0) throw FolderError(folder_, "cannot leave O_DIRECT", errno);
  }
  if (error != 0 && error != EINVAL && error != EOPNOTSUPP) throw FolderError(folder_, "cannot write", error);
  if (error != 0) {
    why_not_ = "without O_DIRECT (" + std::generic_category().message(error) + ")";
    return false;
  }
  memory_alignment_ = kDirectAlignment;
  if (const int64_t told = DirectMemoryAlignment(fd_); told > 0) memory_alignment_ = std::min(told, kDirectAlignment);
  return direct_ = true;
}

void NamelessFile::Sync() const {
  int result;
  do result = ::fdatasync(fd_);
  while (result != 0 && errno == EINTR);
  if (result != 0) throw FolderError(folder_, "cannot sync", errno);
}

}  // namespace ds
