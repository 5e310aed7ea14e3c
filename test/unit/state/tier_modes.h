// The ways in which a file tier may move its bytes, and memory to move them from and to.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "runtime/base/failpoint.h"
#include "runtime/state/file_lane.h"
#include "test/unit/data/temp_folder.h"

namespace ds::test {

struct TierMode {
  std::string name;
  IoBackend backend = IoBackend::threads;
  bool direct = true;
};

/// Those that this machine has.
inline std::vector<TierMode> TierModes() {
  std::vector<TierMode> modes = {{"threads, O_DIRECT", IoBackend::threads, true},
                                 {"threads, page cache", IoBackend::threads, false}};
  if (WhyNoIoUring().empty()) {
    modes.push_back({"io_uring, O_DIRECT", IoBackend::io_uring, true});
    modes.push_back({"io_uring, page cache", IoBackend::io_uring, false});
  }
  return modes;
}

inline FileTierOptions OptionsOf(const TierMode& mode, std::vector<std::string> paths) {
  FileTierOptions options;
  options.paths = std::move(paths);
  options.block_bytes = 64 << 10;
  options.queue_depth = 4;
  options.stripe_bytes = 128 << 10;
  options.direct = mode.direct;
  options.backend = mode.backend;
  return options;
}

/// Failpoints for a scope.
struct Failpoints {
  explicit Failpoints(const std::string& entries) { SetFailpoints(entries); }
  ~Failpoints() { SetFailpoints(""); }
};

/// Bytes at a page's begin and `shift` behind it, poisoned, with a guard on both sides.
class Guarded {
 public:
  static constexpr size_t kGuard = 64;
  static constexpr char kPoison = '\x5a';

  Guarded(int64_t bytes, int64_t shift)
      : bytes_(static_cast<size_t>(bytes)), shift_(static_cast<size_t>(shift)), whole_(Room(), kPoison) {
    const size_t page = 4096;
    const auto at = reinterpret_cast<uintptr_t>(whole_.data()) + kGuard;
    begin_ = (page - at % page) % page + kGuard + shift_;
  }
  char* data() { return whole_.data() + begin_; }
  std::string Text() const { return whole_.substr(begin_, bytes_); }
  bool GuardsHold() const {
    return whole_.find_first_not_of(kPoison) >= begin_ && (whole_.find_last_not_of(kPoison) == std::string::npos ||
                                                           whole_.find_last_not_of(kPoison) < begin_ + bytes_);
  }

 private:
  size_t Room() const { return bytes_ + shift_ + 4096 + 2 * kGuard; }

  const size_t bytes_, shift_;
  std::string whole_;
  size_t begin_ = 0;
};

/// Letters: no byte of them is the poison.
inline std::string RandomText(std::mt19937_64& random, int64_t bytes) {
  std::string text(static_cast<size_t>(bytes), '\0');
  uint64_t bits = random();
  for (char& c : text) {
    bits = bits * 6364136223846793005u + 1442695040888963407u;
    c = static_cast<char>('A' + (bits >> 60));
  }
  return text;
}

}  // namespace ds::test
