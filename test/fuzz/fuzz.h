// What the fuzz targets share. A target is a file NAME_fuzz.cc with one LLVMFuzzerTestOneInput: it hands the bytes to a
// reader through Guarded, which ends the process (a finding) unless the reader
//
//   - returns, or throws an Error whose message begins with the place that the target names,
//   - has never held more memory at once than a constant and a multiple of the input's size.
//
// Crashes and undefined behaviour are found by the sanitizers, hangs by libFuzzer's -timeout.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace ds::fuzz {

/// What a reader may hold at once: constant + per_byte * (bytes of its input), in bytes.
struct Memory {
  int64_t per_byte = 0;
  int64_t constant = 0;
};

/// Ends the process with `what` and `detail` where `holds` is false.
void Check(bool holds, std::string_view what, std::string_view detail = {});

/// Runs `read` on an input of `bytes` bytes. True where it returned; false where it threw an Error, as it may.
/// `places`: each line of the message begins with one of them (none: no check).
bool Guarded(size_t bytes, Memory limit, const std::vector<std::string>& places, const std::function<void()>& read);

/// The parts of an input that are divided by lines "%%".
std::vector<std::string> Parts(std::string_view input);

/// A file in memory with the given bytes; gone with this object.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes);
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  std::string path() const;

 private:
  int fd_ = -1;
};

/// A folder of this process, empty at first; gone with this object.
class Folder {
 public:
  Folder();
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::filesystem::path& path() const { return path_; }
  void Write(const std::string& name, std::string_view bytes) const;

 private:
  std::filesystem::path path_;
};

inline std::string_view View(const uint8_t* data, size_t size) { return {reinterpret_cast<const char*>(data), size}; }

}  // namespace ds::fuzz
