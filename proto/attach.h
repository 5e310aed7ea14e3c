// The first words between a `ds-agent --attached` and the program that started it over a stream that others may write
// to as well (a shell's start-up files, a banner): the agent says on standard output that it is there, and only then is
// handed its bootstrap message on standard input, with its length, which stays open behind it. When standard input
// ends, so does the agent.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ds {

/// Who answered.
struct AttachedAgent {
  uint32_t protocol = 0;
  std::string build;
};

/// What the agent writes, newlines around it.
std::string ReadyLine(const AttachedAgent& agent);

/// The agent's line among whatever else was written; nothing while it is not there, or not whole.
std::optional<AttachedAgent> FindReady(std::string_view output);

/// `message` (a serialized Bootstrap) as it goes over standard input.
std::string FrameBootstrap(const std::string& message);

/// Reads one frame from `fd`. Nothing at the end of the stream before it is whole. Throws UsageError where it is not a
/// frame or too long, SystemError where it cannot be read.
std::optional<std::string> ReadFrame(int fd);

}  // namespace ds
