#include "test/docs/markdown.h"

#include <algorithm>
#include <array>
#include <sstream>

namespace ds::docs_test {
namespace {

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

bool IsBlank(const std::string& line) { return line.find_first_not_of(" \t") == std::string::npos; }
bool IsIndented(const std::string& line) { return line.starts_with("    "); }
bool IsFence(const std::string& line) { return line.starts_with("```"); }

/// KIND of `<!-- test: KIND -->`; empty: the line is no such comment.
std::string Marker(const std::string& line) {
  const std::string open = "<!-- test: ", close = " -->";
  if (!line.starts_with(open) || !line.ends_with(close)) return "";
  return line.substr(open.size(), line.size() - open.size() - close.size());
}

/// Begins as a command of this project does.
bool IsCommand(const std::string& text) {
  const std::array<const char*, 4> starts = {"ds-", "build/bin/", "scripts/", ".ci/"};
  return text.find(' ') != std::string::npos &&
         std::any_of(starts.begin(), starts.end(), [&](const char* start) { return text.starts_with(start); });
}

}  // namespace

std::vector<Block> Blocks(const std::string& markdown, const std::string& name) {
  const std::vector<std::string> lines = Lines(markdown);
  std::vector<Block> blocks;
  std::string marker;
  for (size_t i = 0; i < lines.size();) {
    if (const std::string found = Marker(lines[i]); !found.empty()) {
      marker = found;
      ++i;
    } else if (IsFence(lines[i])) {
      const bool yaml = lines[i].substr(3) == "yaml";
      Block block{name, static_cast<int>(i) + 2, !marker.empty() ? marker : yaml ? "job" : "check", {}};
      for (++i; i < lines.size() && !IsFence(lines[i]); ++i) block.text.push_back(lines[i]);
      ++i;
      blocks.push_back(std::move(block));
      marker.clear();
    } else if (IsIndented(lines[i]) && (i == 0 || IsBlank(lines[i - 1]) || !Marker(lines[i - 1]).empty())) {
      Block block{name, static_cast<int>(i) + 1, marker.empty() ? "check" : marker, {}};
      for (; i < lines.size() && (IsIndented(lines[i]) || IsBlank(lines[i])); ++i)
        block.text.push_back(IsIndented(lines[i]) ? lines[i].substr(4) : "");
      while (!block.text.empty() && IsBlank(block.text.back())) block.text.pop_back();
      blocks.push_back(std::move(block));
      marker.clear();
    } else {
      if (!IsBlank(lines[i])) marker.clear();
      ++i;
    }
  }
  return blocks;
}

std::vector<Block> CommandSpans(const std::string& markdown, const std::string& name) {
  std::vector<Block> spans;
  const std::vector<std::string> lines = Lines(markdown);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (IsIndented(lines[i]) || IsFence(lines[i])) continue;
    for (size_t at = lines[i].find('`'); at != std::string::npos;) {
      const size_t end = lines[i].find('`', at + 1);
      if (end == std::string::npos) break;
      const std::string text = lines[i].substr(at + 1, end - at - 1);
      if (IsCommand(text)) spans.push_back(Block{name, static_cast<int>(i) + 1, "synopsis", {text}});
      at = lines[i].find('`', end + 1);
    }
  }
  return spans;
}

}  // namespace ds::docs_test
