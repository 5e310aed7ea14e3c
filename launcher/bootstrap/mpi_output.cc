#include "launcher/bootstrap/mpi_output.h"

#include <cctype>
#include <sstream>

namespace ds {
namespace {

constexpr size_t kMaxLines = 40;
constexpr size_t kMaxLineBytes = 500;

bool OfName(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.'; }

bool Names(const std::string& line, const std::string& host) {
  for (size_t at = line.find(host); at != std::string::npos; at = line.find(host, at + 1)) {
    const size_t end = at + host.size();
    if (at > 0 && OfName(line[at - 1])) continue;
    // "w1." ends a sentence, "w1.example" is another name
    if (end < line.size() && OfName(line[end]) &&
        !(line[end] == '.' && (end + 1 == line.size() || line[end + 1] == ' ')))
      continue;
    return true;
  }
  return false;
}

}  // namespace

MpiAgentLine ReadMpiAgentLine(std::string_view line) {
  constexpr std::string_view kBegin = "ds-mpi-agent: node ";
  MpiAgentLine found;
  if (!line.starts_with(kBegin)) return found;
  std::istringstream words{std::string(line.substr(kBegin.size()))};
  std::string what;
  if (!(words >> found.node >> what)) return found;
  if (what == "began" && words >> found.pid >> found.boot_id) found.kind = MpiAgentLine::Kind::began;
  if (what == "ended" && words >> found.end.code >> found.end.signal) found.kind = MpiAgentLine::Kind::ended;
  return found;
}

TaggedLine ReadTag(std::string_view line) {
  if (!line.starts_with("[")) return {false, line};
  for (std::string_view tag : {"]<stdout>:", "]<stderr>:"}) {
    const size_t at = line.find(tag);
    if (at == std::string_view::npos || line.substr(0, at).find(',') == std::string_view::npos) continue;
    std::string_view text = line.substr(at + tag.size());
    if (text.starts_with(" ")) text.remove_prefix(1);  // Open MPI 5 writes a blank there
    return {true, text};
  }
  return {false, line};
}

void MpirunWords::Add(std::string_view line) {
  while (!line.empty() && std::isspace(static_cast<unsigned char>(line.back()))) line.remove_suffix(1);
  if (line.starts_with("------")) advice_ = false;
  if (line.find("usually is caused by") != std::string_view::npos) advice_ = true;
  if (advice_ || line.find_first_not_of("- ") == std::string_view::npos) return;
  lines_.emplace_back(line.substr(0, kMaxLineBytes));
  if (lines_.size() > kMaxLines) lines_.pop_front();
}

std::string MpirunWords::text() const {
  std::string text;
  for (const std::string& line : lines_) text += (text.empty() ? "  " : "\n  ") + line;
  return text;
}

int MpirunWords::FirstNamed(const std::vector<std::string>& hosts) const {
  for (const std::string& line : lines_) {
    for (size_t i = 0; i < hosts.size(); ++i) {
      if (Names(line, hosts[i])) return static_cast<int>(i);
    }
  }
  return -1;
}

std::string OpenMpiVersion(std::string_view printed) {
  constexpr std::string_view kName = "(Open MPI) ";
  const size_t at = printed.find(kName);
  if (at == std::string_view::npos) return "";
  const std::string_view rest = printed.substr(at + kName.size());
  return "Open MPI " + std::string(rest.substr(0, rest.find_first_of(" \n\r")));
}

}  // namespace ds
