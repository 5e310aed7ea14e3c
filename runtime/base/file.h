// Files: whole reads, durable writes, directories. Every failure is an Error that names the path.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace ds {

/// The whole file. Throws SystemError("cannot read PATH").
std::string ReadFile(const std::filesystem::path& path);

/// Replaces `path` durably: writes a temporary file beside it, syncs it, renames it over `path`, syncs the folder.
/// After a crash `path` holds either the old bytes or the new ones, whole.
void WriteFileAtomically(const std::filesystem::path& path, std::string_view bytes);

/// fsync of a file or a folder.
void SyncPath(const std::filesystem::path& path);

/// Creates `path` and its parents; an existing folder is no error.
void MakeDirectories(const std::filesystem::path& path);

/// A symbolic link at `link` that points to `target` (as written: relative stays relative), replacing an older one
/// atomically.
void ReplaceSymlink(const std::filesystem::path& target, const std::filesystem::path& link);

/// Appends whole lines to one file; each Append is one write(2). Owned by one thread.
class LineFile {
 public:
  /// Opens for append, creates. A symbolic link, a pipe or a device is refused: whoever put it there is not asked.
  explicit LineFile(const std::filesystem::path& path);
  ~LineFile();
  LineFile(const LineFile&) = delete;
  LineFile& operator=(const LineFile&) = delete;
  void Append(std::string_view line);  ///< adds the newline

 private:
  int fd_ = -1;
  std::filesystem::path path_;
};

/// A read-only memory map of a whole file; empty files map to an empty span. Movable.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  const char* data() const { return data_; }
  size_t size() const { return size_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  const char* data_ = nullptr;
  size_t size_ = 0;
  std::filesystem::path path_;
};

}  // namespace ds
