// The safetensors file format (huggingface/safetensors, "Format"): what checkpoints and exported models are kept in, so
// that any framework reads them.
//
//   8 bytes   N, little-endian
//   N bytes   JSON: {"__metadata__": {text: text}, NAME: {"dtype", "shape", "data_offsets": [begin, end)}, ...}, padded
//             with spaces so that the data begins at a multiple of 8
//   the rest  data; offsets count from its start; no holes, no overlap
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "kernels/dtype.h"
#include "runtime/base/checksum.h"
#include "runtime/base/file.h"

namespace ds {

/// "F32", "BF16", ...: the format's name of a dtype.
const char* SafetensorsName(DType dtype);

/// One tensor of a file to be written.
struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
  int64_t bytes() const;
};

/// Writes one file from front to back. Data come in the order of `entries`, in any pieces; nothing is kept in memory.
/// A writer that is destroyed before Finish() leaves an unfinished file behind: write where that does no harm.
class SafetensorsWriter {
 public:
  /// Creates `path` (which must not exist) and writes the header. Throws SystemError that names the path.
  SafetensorsWriter(const std::filesystem::path& path, std::vector<SafetensorsEntry> entries,
                    const std::map<std::string, std::string>& metadata = {});
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  /// The next bytes of the data.
  void Append(const void* data, int64_t bytes);

  struct Result {
    int64_t bytes = 0;  ///< of the whole file
    uint64_t xxh64 = 0;
  };
  /// Syncs and closes. Throws RuntimeError unless exactly the data that the entries need were appended.
  Result Finish();

 private:
  void Write(const void* data, int64_t bytes);
  void WriteBlock(const char* data, int64_t bytes);

  std::filesystem::path path_;
  int fd_ = -1;
  int64_t left_ = 0;  // bytes of data still to come
  Result result_;
  ChecksumStream checksum_;
};

/// A memory-mapped file whose header was checked whole: sizes, dtypes, shapes, and that the tensors' bytes fill the
/// file without holes or overlap. Read-only; thread-safe.
class SafetensorsFile {
 public:
  struct Entry {
    std::string dtype;  ///< as the file names it
    std::vector<int64_t> shape;
    const char* data = nullptr;  ///< in the map; lives as long as this object
    int64_t bytes = 0;
    int64_t numel() const;
  };

  /// Throws RuntimeError that names the file and what is wrong with it.
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::map<std::string, Entry>& entries() const { return entries_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  /// Throws RuntimeError: no tensor of that name.
  const Entry& At(const std::string& name) const;
  const std::filesystem::path& path() const { return map_.path(); }

 private:
  MappedFile map_;
  std::map<std::string, Entry> entries_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace ds
