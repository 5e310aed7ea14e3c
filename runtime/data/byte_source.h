// Bytes as a stream: a file, standard input or memory, decompressed where they are gzip or Zstandard.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace ds {

/// Owned by one thread.
class ByteSource {
 public:
  explicit ByteSource(std::string name) : name_(std::move(name)) {}
  virtual ~ByteSource() = default;
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;

  /// Up to `most` (> 0) bytes into `out`; returns how many, 0 at the end. Throws Error that names the source.
  virtual size_t Read(char* out, size_t most) = 0;
  /// Bytes taken from the file or stream itself, before decompression.
  virtual int64_t position() const = 0;
  /// For messages: the path, or "standard input".
  const std::string& name() const { return name_; }

 private:
  std::string name_;
};

/// The bytes of a file, pipe or ("-") standard input as they are. Throws UsageError: it cannot be opened.
std::unique_ptr<ByteSource> FileSource(const std::filesystem::path& path);

/// `bytes` belongs to the caller and outlives the source.
std::unique_ptr<ByteSource> MemorySource(std::string_view bytes, const std::string& name);

/// `source`, decompressed where its first bytes say that it is gzip (RFC 1952) or Zstandard (RFC 8878): concatenated
/// members and frames are one stream; zeros after the last gzip member are padding. Memory is bounded whatever the
/// compressed bytes ask for: 128 MiB of Zstandard window at most. Reading throws UsageError with name and offset: cut
/// short, damaged, something else after the last member. Throws UsageError: the name says .gz, .zst or .zstd and the
/// bytes do not, or the other way round they are of a format that is not read (xz, bzip2, lz4, zip, Parquet).
std::unique_ptr<ByteSource> Decompressed(std::unique_ptr<ByteSource> source);

/// Whether a name ends in .gz, .zst or .zstd; and the name without that.
bool IsCompressedName(const std::filesystem::path& path);
std::filesystem::path WithoutCompression(const std::filesystem::path& path);

/// Reads until `most` bytes are there or the source ends; returns how many.
size_t ReadFully(ByteSource& source, char* out, size_t most);

}  // namespace ds
