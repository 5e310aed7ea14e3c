#include "test/fuzz/fuzz.h"

#include <sanitizer/allocator_interface.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "runtime/base/error.h"

namespace ds::fuzz {
namespace {

/// Bytes that the program holds on the heap, by the sanitizer's account: since Reset(), now and at most.
class Heap {
 public:
  static void Reset() {
    [[maybe_unused]] static const int installed = __sanitizer_install_malloc_and_free_hooks(OnMalloc, OnFree);
    held_ = 0;
    most_ = 0;
  }
  static int64_t Most() { return most_; }

 private:
  static void OnMalloc(const volatile void*, size_t bytes) {
    const int64_t now = held_ += static_cast<int64_t>(bytes);
    int64_t most = most_;
    while (now > most && !most_.compare_exchange_weak(most, now)) {
    }
  }
  static void OnFree(const volatile void* block) {
    if (block != nullptr) held_ -= static_cast<int64_t>(__sanitizer_get_allocated_size(const_cast<const void*>(block)));
  }

  static std::atomic<int64_t> held_, most_;
};
std::atomic<int64_t> Heap::held_ = 0, Heap::most_ = 0;

void CheckPlaces(const std::string& message, const std::vector<std::string>& places) {
  Check(!message.empty(), "an error without a message");
  for (size_t start = 0; !places.empty() && start < message.size();) {
    const size_t end = std::min(message.find('\n', start), message.size());
    const std::string_view line(message.data() + start, end - start);
    Check(std::any_of(places.begin(), places.end(), [&](const std::string& place) { return line.starts_with(place); }),
          "a line of an error does not begin with the place it is about", line);
    start = end + 1;
  }
}

}  // namespace

void Check(bool holds, std::string_view what, std::string_view detail) {
  if (holds) return;
  std::fprintf(stderr, "FINDING: %.*s: %.*s\n", static_cast<int>(what.size()), what.data(),
               static_cast<int>(std::min<size_t>(detail.size(), 2000)), detail.data());
  std::abort();
}

bool Guarded(size_t bytes, Memory limit, const std::vector<std::string>& places, const std::function<void()>& read) {
  bool returned = false;
  Heap::Reset();
  try {
    read();
    returned = true;
  } catch (const Error& error) {
    CheckPlaces(error.what(), places);
  } catch (const std::exception& error) {
    Check(false, "an exception that is no Error", error.what());
  }
  const int64_t most = Heap::Most(), allowed = limit.constant + limit.per_byte * static_cast<int64_t>(bytes);
  Check(most <= allowed, "too much memory",
        std::to_string(most) + " bytes for an input of " + std::to_string(bytes) + ", allowed are " +
            std::to_string(allowed));
  return returned;
}

std::vector<std::string> Parts(std::string_view input) {
  constexpr std::string_view divider = "\n%%\n";
  std::vector<std::string> parts;
  for (;;) {
    const size_t end = input.find(divider);
    parts.emplace_back(input.substr(0, end));
    if (end == std::string_view::npos) return parts;
    input.remove_prefix(end + divider.size());
  }
}

MemoryFile::MemoryFile(std::string_view bytes) : fd_(::memfd_create("input", MFD_CLOEXEC)) {
  Check(fd_ >= 0, "memfd_create failed");
  Check(::write(fd_, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()), "write failed");
}

MemoryFile::~MemoryFile() { ::close(fd_); }

std::string MemoryFile::path() const { return "/proc/self/fd/" + std::to_string(fd_); }

Folder::Folder() {
  const char* root = ::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
  std::string name = std::string(root) + "/ds-fuzz-XXXXXX";
  Check(::mkdtemp(name.data()) != nullptr, "mkdtemp failed");
  path_ = name;
}

Folder::~Folder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void Folder::Write(const std::string& name, std::string_view bytes) const {
  std::ofstream(path_ / name, std::ios::binary) << bytes;
}

}  // namespace ds::fuzz
