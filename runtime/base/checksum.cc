#include "runtime/base/checksum.h"

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <new>
#include <vector>

#include "runtime/base/error.h"

namespace ds {

uint64_t Checksum(std::string_view bytes) { return XXH64(bytes.data(), bytes.size(), 0); }

struct ChecksumStream::State {
  XXH64_state_t* xxh = XXH64_createState();
  State() {
    if (!xxh) throw std::bad_alloc();
    XXH64_reset(xxh, 0);
  }
  ~State() { XXH64_freeState(xxh); }
};

ChecksumStream::ChecksumStream() : state_(std::make_unique<State>()) {}
ChecksumStream::~ChecksumStream() = default;
ChecksumStream::ChecksumStream(ChecksumStream&&) noexcept = default;
ChecksumStream& ChecksumStream::operator=(ChecksumStream&&) noexcept = default;

void ChecksumStream::Update(const void* bytes, size_t count) {
  if (count > 0) XXH64_update(state_->xxh, bytes, count);
}

uint64_t ChecksumStream::Value() const { return XXH64_digest(state_->xxh); }

uint64_t ChecksumFile(const std::filesystem::path& path, const std::function<void(size_t)>& on_bytes) {
  int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw SystemError("cannot open " + path.string(), errno);
  ChecksumStream checksum;
  std::vector<char> block(1 << 20);
  for (;;) {
    ssize_t n = ::read(fd, block.data(), block.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      int error = errno;
      ::close(fd);
      throw SystemError("cannot read " + path.string(), error);
    }
    if (n == 0) break;
    checksum.Update(block.data(), static_cast<size_t>(n));
    if (on_bytes) on_bytes(static_cast<size_t>(n));
  }
  ::close(fd);
  return checksum.Value();
}

std::string ChecksumText(uint64_t checksum) {
  std::string text(16, '0');
  for (int i = 15; i >= 0; --i, checksum >>= 4) text[i] = "0123456789abcdef"[checksum & 15];
  return text;
}

std::optional<uint64_t> ParseChecksum(std::string_view text) {
  if (text.size() != 16) return std::nullopt;
  uint64_t value = 0;
  for (char c : text) {
    if (c >= '0' && c <= '9')
      value = value << 4 | static_cast<uint64_t>(c - '0');
    else if (c >= 'a' && c <= 'f')
      value = value << 4 | static_cast<uint64_t>(c - 'a' + 10);
    else
      return std::nullopt;
  }
  return value;
}

}  // namespace ds
