#include "runtime/data/byte_source.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "runtime/base/error.h"

namespace ds {
namespace {

namespace fs = std::filesystem;

class DescriptorSource : public ByteSource {
 public:
  DescriptorSource(int fd, const std::string& name) : ByteSource(name), fd_(fd) {}
  ~DescriptorSource() override {
    if (fd_ != STDIN_FILENO) ::close(fd_);
  }
  size_t Read(char* out, size_t most) override {
    // EINTR is an error: a program whose handlers do not restart a wait wants it to end.
    const ssize_t count = ::read(fd_, out, most);
    if (count < 0) throw SystemError("cannot read " + name() + " at byte " + std::to_string(position_), errno);
    position_ += count;
    return static_cast<size_t>(count);
  }
  int64_t position() const override { return position_; }

 private:
  int fd_;
  int64_t position_ = 0;
};

class StringSource : public ByteSource {
 public:
  StringSource(std::string_view bytes, const std::string& name) : ByteSource(name), bytes_(bytes) {}
  size_t Read(char* out, size_t most) override {
    const size_t count = std::min(most, bytes_.size() - at_);
    if (count > 0) std::memcpy(out, bytes_.data() + at_, count);
    at_ += count;
    return count;
  }
  int64_t position() const override { return static_cast<int64_t>(at_); }

 private:
  std::string_view bytes_;
  size_t at_ = 0;
};

}  // namespace

std::unique_ptr<ByteSource> FileSource(const fs::path& path) {
  if (path == "-") return std::make_unique<DescriptorSource>(STDIN_FILENO, "standard input");
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw UsageError("cannot open " + path.string() + ": " + std::generic_category().message(errno));
  return std::make_unique<DescriptorSource>(fd, path.string());
}

std::unique_ptr<ByteSource> MemorySource(std::string_view bytes, const std::string& name) {
  return std::make_unique<StringSource>(bytes, name);
}

bool IsCompressedName(const fs::path& path) {
  return path.extension() == ".gz" || path.extension() == ".zst" || path.extension() == ".zstd";
}

fs::path WithoutCompression(const fs::path& path) {
  return IsCompressedName(path) ? path.parent_path() / path.stem() : path;
}

size_t ReadFully(ByteSource& source, char* out, size_t most) {
  size_t done = 0;
  while (done < most) {
    const size_t count = source.Read(out + done, most - done);
    if (count == 0) break;
    done += count;
  }
  return done;
}

}  // namespace ds
