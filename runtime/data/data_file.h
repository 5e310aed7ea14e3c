// Files as the passes of a conversion use them: appended to in blocks, and read anywhere.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "runtime/base/checksum.h"

namespace ds {

/// Errors name the path. Owned by one thread.
class AppendFile {
 public:
  /// Creates `path`; of what is there the first `keep` bytes stay.
  explicit AppendFile(const std::filesystem::path& path, int64_t keep = 0);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  void Append(const void* bytes, size_t count);
  void Flush();
  void Sync();  ///< Flush, and to the disk
  /// XXH64 of what was flushed since the last call.
  uint64_t TakeChecksum();

 private:
  std::filesystem::path path_;
  int fd_ = -1;
  ChecksumStream checksum_;
  std::string block_;
};

/// Thread-safe.
class RandomFile {
 public:
  explicit RandomFile(const std::filesystem::path& path);
  ~RandomFile();
  RandomFile(const RandomFile&) = delete;
  RandomFile& operator=(const RandomFile&) = delete;

  /// Bytes [at, at + count), or up to the end where fewer are there; returns how many.
  size_t Read(int64_t at, size_t count, void* out) const;
  /// The same; fewer are a RuntimeError.
  void ReadExactly(int64_t at, size_t count, void* out) const;

 private:
  std::filesystem::path path_;
  int fd_ = -1;
};

}  // namespace ds
