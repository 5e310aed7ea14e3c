#include "proto/attach.h"

#include <unistd.h>

#include <cerrno>
#include <charconv>

#include "runtime/base/error.h"

namespace ds {
namespace {

constexpr std::string_view kReady = "DEEPSHARD-AGENT-READY protocol=", kBuild = " build=", kEnd = " ready\n";
constexpr std::string_view kMagic = "DSBOOT1\n";
constexpr size_t kLongestMessage = 1 << 20, kLongestBuild = 200;

/// False at the end of the stream.
bool ReadExactly(int fd, char* data, size_t size) {
  while (size > 0) {
    const ssize_t n = ::read(fd, data, size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw SystemError("cannot read the bootstrap message from standard input", errno);
    if (n == 0) return false;
    data += n;
    size -= static_cast<size_t>(n);
  }
  return true;
}

}  // namespace

std::string ReadyLine(const AttachedAgent& agent) {
  return "\n" + std::string(kReady) + std::to_string(agent.protocol) + std::string(kBuild) + agent.build +
         std::string(kEnd);
}

std::optional<AttachedAgent> FindReady(std::string_view output) {
  for (size_t at = 0; (at = output.find(kReady, at)) != std::string_view::npos; at += kReady.size()) {
    const std::string_view rest = output.substr(at + kReady.size());
    const std::string_view line = rest.substr(0, rest.find('\n') + 1);
    AttachedAgent agent;
    const auto [after, error] = std::from_chars(line.data(), line.data() + line.size(), agent.protocol);
    if (error != std::errc()) continue;
    std::string_view fields(after, static_cast<size_t>(line.data() + line.size() - after));
    if (!fields.starts_with(kBuild) || !fields.ends_with(kEnd)) continue;
    fields.remove_prefix(kBuild.size());
    fields.remove_suffix(kEnd.size());
    if (fields.empty() || fields.size() > kLongestBuild) continue;
    agent.build = fields;
    return agent;
  }
  return std::nullopt;
}

std::string FrameBootstrap(const std::string& message) {
  std::string frame(kMagic);
  for (int shift = 24; shift >= 0; shift -= 8) frame += static_cast<char>((message.size() >> shift) & 0xff);
  return frame + message;
}

std::optional<std::string> ReadFrame(int fd) {
  std::string head(kMagic.size() + 4, '\0');
  if (!ReadExactly(fd, head.data(), head.size())) return std::nullopt;
  size_t size = 0;
  for (size_t i = kMagic.size(); i < head.size(); ++i) size = size << 8 | static_cast<unsigned char>(head[i]);
  if (!head.starts_with(kMagic) || size > kLongestMessage) {
    throw UsageError("standard input holds no bootstrap message: ds-agent is started by ds-launch");
  }
  std::string message(size, '\0');
  if (!ReadExactly(fd, message.data(), size)) return std::nullopt;
  return message;
}

}  // namespace ds
