#include "runtime/bench/rank_link.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "runtime/base/error.h"

namespace ds {
namespace {

constexpr uint32_t kMostStrings = 64, kMostBytes = 1 << 20;

bool Write(int fd, const void* data, size_t size) {
  for (const char* at = static_cast<const char*>(data); size > 0;) {
    const ssize_t n = ::send(fd, at, size, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n, size -= static_cast<size_t>(n);
  }
  return true;
}

bool Read(int fd, void* data, size_t size) {
  for (char* at = static_cast<char*>(data); size > 0;) {
    const ssize_t n = ::recv(fd, at, size, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n, size -= static_cast<size_t>(n);
  }
  return true;
}

void Append(std::string& bytes, uint32_t number) {
  char text[sizeof number];
  std::memcpy(text, &number, sizeof number);
  bytes.append(text, sizeof number);
}

}  // namespace

bool SendRankMessage(int fd, const RankMessage& message) {
  std::string bytes;
  Append(bytes, static_cast<uint32_t>(message.size()));
  for (const std::string& text : message) {
    Append(bytes, static_cast<uint32_t>(text.size()));
    bytes += text;
  }
  return Write(fd, bytes.data(), bytes.size());
}

std::optional<RankMessage> ReceiveRankMessage(int fd) {
  uint32_t count = 0;
  if (!Read(fd, &count, sizeof count) || count == 0 || count > kMostStrings) return std::nullopt;
  RankMessage message(count);
  for (std::string& text : message) {
    uint32_t size = 0;
    if (!Read(fd, &size, sizeof size) || size > kMostBytes) return std::nullopt;
    text.resize(size);
    if (!Read(fd, text.data(), size)) return std::nullopt;
  }
  return message;
}

void RankStore::Set(const std::string& key, const std::string& value) {
  const std::lock_guard lock(mutex_);
  if (!SendRankMessage(fd_, {"set", key, value})) throw RuntimeError("rendezvous: ds-bench is gone");
}

std::string RankStore::Get(const std::string& key, std::chrono::milliseconds timeout) {
  const std::lock_guard lock(mutex_);
  if (!SendRankMessage(fd_, {"get", key, std::to_string(timeout.count())}))
    throw RuntimeError("rendezvous: ds-bench is gone");
  const std::optional<RankMessage> answer = ReceiveRankMessage(fd_);
  if (!answer) throw RuntimeError("rendezvous: ds-bench is gone");
  if (answer->size() != 2 || answer->front() != "value")
    throw RuntimeError("rendezvous: nobody set '" + key + "' within " + std::to_string(timeout.count()) + " ms");
  return answer->back();
}

}  // namespace ds
