// XXH64 checksums (Collet, xxhash.com): what guards token files and checkpoints against torn writes and decayed disks.
// Not a defence against an adversary.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace ds {

/// XXH64 with seed 0 of a run of bytes.
uint64_t Checksum(std::string_view bytes);

/// XXH64 with seed 0 of bytes that come in pieces.
class ChecksumStream {
 public:
  ChecksumStream();
  ~ChecksumStream();
  ChecksumStream(ChecksumStream&&) noexcept;
  ChecksumStream& operator=(ChecksumStream&&) noexcept;
  void Update(const void* bytes, size_t count);
  /// Of all bytes so far; more may follow.
  uint64_t Value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Of a whole file, read once from front to back in bounded memory. Throws SystemError that names the path. `on_bytes`
/// is told of each piece that was read, at most 1 MiB.
uint64_t ChecksumFile(const std::filesystem::path& path, const std::function<void(size_t)>& on_bytes = {});

/// Sixteen lower-case hexadecimal digits, as `xxhsum -H64` prints them; and back (nullopt: not sixteen such digits).
std::string ChecksumText(uint64_t checksum);
std::optional<uint64_t> ParseChecksum(std::string_view text);

}  // namespace ds
