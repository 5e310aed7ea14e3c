#include "runtime/job/env_file.h"

#include <algorithm>
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace ds {
namespace {

constexpr size_t kMostErrors = 100;
constexpr std::string_view kBlanks = " \t";
constexpr std::string_view kExport = "export";

bool InName(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte > 0x20 && byte != 0x7F && std::string_view("=#'\"\\`").find(c) == std::string_view::npos;
}

class Reader {
 public:
  explicit Reader(const std::string& file) { at_.file = file; }

  std::vector<EnvVariable> Read(std::string_view text) {
    if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
    while (!text.empty() && errors_.size() < kMostErrors) {
      ++at_.line;
      const size_t end = std::min(text.find('\n'), text.size());
      std::string_view line = text.substr(0, end);
      if (line.ends_with('\r')) line.remove_suffix(1);
      ReadLine(line);
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    if (!errors_.empty()) throw UsageError(Join(errors_, "\n"));
    return std::move(variables_);
  }

 private:
  void Complain(size_t at, const std::string& reason) {
    at_.column = static_cast<int>(at) + 1;
    errors_.push_back(at_.str() + ": " + reason);
  }

  void ReadLine(std::string_view line) {
    size_t at = line.find_first_not_of(kBlanks);
    if (at == std::string_view::npos || line[at] == '#') return;
    if (const size_t zero = line.find('\0'); zero != std::string_view::npos)
      return Complain(zero, "a zero byte, which no variable can hold; remove it");
    const size_t after = at + kExport.size();
    if (line.substr(at).starts_with(kExport) && after < line.size() && kBlanks.find(line[after]) != kBlanks.npos) {
      at = line.find_first_not_of(kBlanks, after);
      if (at == std::string_view::npos) return Complain(after, "nothing after export; write NAME=VALUE");
    }
    size_t end = at;
    while (end < line.size() && InName(line[end])) ++end;
    const std::string name(line.substr(at, end - at));
    if (end == line.size()) return Complain(at, Shown(name) + ": '=' is absent; write NAME=VALUE");
    if (line[end] != '=')
      return Complain(end, "not a part of a name; write NAME=VALUE, without blanks or quotes in or after NAME");
    if (name.empty()) return Complain(at, "a name is wanted before '='; write NAME=VALUE");
    const size_t errors = errors_.size();
    std::string value = ReadValue(line, end + 1);
    at_.column = static_cast<int>(at) + 1;
    if (errors_.size() == errors) variables_.push_back({name, std::move(value), at_});
  }

  std::string ReadValue(std::string_view line, size_t begin) {
    begin = std::min(line.find_first_not_of(kBlanks, begin), line.size());
    if (begin == line.size()) return "";
    if (line[begin] == '\'' || line[begin] == '"') return ReadQuoted(line, begin);
    for (size_t i = begin; i < line.size(); ++i) {
      if (line[i] == '#' && (i == begin || kBlanks.find(line[i - 1]) != kBlanks.npos)) {
        Complain(i, "a comment or a part of the value? Put the value in quotes, or remove the comment");
        return "";
      }
    }
    const size_t last = line.find_last_not_of(kBlanks);
    return std::string(line.substr(begin, last + 1 - begin));
  }

  std::string ReadQuoted(std::string_view line, size_t begin) {
    const char quote = line[begin];
    std::string value;
    size_t at = begin + 1;
    for (; at < line.size() && line[at] != quote; ++at) {
      const bool escape = quote == '"' && line[at] == '\\' && at + 1 < line.size() &&
                          std::string_view("\"\\$`").find(line[at + 1]) != std::string_view::npos;
      if (escape) ++at;
      value += line[at];
    }
    if (at == line.size()) {
      Complain(begin, "the quote is not closed on this line (a value with a newline: launch.env or --export)");
      return "";
    }
    const size_t rest = line.find_first_not_of(kBlanks, at + 1);
    if (rest != std::string_view::npos && line[rest] != '#')
      Complain(rest, "text after the closing quote; put all of the value in quotes");
    return value;
  }

  Position at_;
  std::vector<EnvVariable> variables_;
  std::vector<std::string> errors_;
};

}  // namespace

std::vector<EnvVariable> ParseEnvFile(const std::string& text, const std::string& file) {
  return Reader(file).Read(text);
}

}  // namespace ds
