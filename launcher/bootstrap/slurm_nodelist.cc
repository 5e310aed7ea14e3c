#include "launcher/bootstrap/slurm_nodelist.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "runtime/base/error.h"

namespace ds {
namespace {

constexpr size_t kMaxNodes = 65536;
constexpr size_t kMaxName = 255;
constexpr size_t kMaxDigits = 18;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

class Reader {
 public:
  Reader(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  bool end() const { return at_ >= text_.size(); }
  char peek() const { return end() ? '\0' : text_[at_]; }
  char Take() { return text_[at_++]; }
  bool Skip(char c) {
    if (end() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  /// Digits, at least one.
  std::string_view Digits() {
    const size_t begin = at_;
    while (!end() && IsDigit(text_[at_])) ++at_;
    if (at_ == begin) Fail("expected a number");
    if (at_ - begin > kMaxDigits) Fail("a number of more than " + std::to_string(kMaxDigits) + " digits");
    return text_.substr(begin, at_ - begin);
  }

  [[noreturn]] void Fail(const std::string& reason) const {
    std::string shown(text_.substr(0, 200));
    std::replace_if(
        shown.begin(), shown.end(), [](unsigned char c) { return c < ' ' || c >= 0x7f; }, '?');
    throw UsageError(name_ + ":" + std::to_string(at_ + 1) + ": " + reason + " in `" + shown +
                     (text_.size() > 200 ? "...`" : "`"));
  }

 private:
  std::string_view text_;
  const std::string& name_;
  size_t at_ = 0;
};

int64_t Number(std::string_view digits) {
  int64_t value = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return value;
}

/// What a bracket stands for: "01", "02", "07".
std::vector<std::string> ReadBracket(Reader& reader) {
  std::vector<std::string> values;
  do {
    const std::string_view low = reader.Digits();
    std::string_view high = low;
    if (reader.Skip('-')) high = reader.Digits();
    const int64_t first = Number(low), last = Number(high);
    if (last < first) reader.Fail("a range that runs backwards");
    if (static_cast<uint64_t>(last - first) >= kMaxNodes - values.size()) reader.Fail("more than 65536 nodes");
    for (int64_t value = first; value <= last; ++value) {
      std::string digits = std::to_string(value);
      if (digits.size() < low.size()) digits.insert(0, low.size() - digits.size(), '0');
      values.push_back(std::move(digits));
    }
  } while (reader.Skip(','));
  if (!reader.Skip(']')) reader.Fail("expected `,` or `]`");
  return values;
}

/// One entry: every name that it stands for.
std::vector<std::string> ReadEntry(Reader& reader) {
  std::vector<std::string> names{""};
  if (reader.peek() == '-') reader.Fail("a node's name begins with `-`");
  while (!reader.end() && reader.peek() != ',') {
    if (names.back().size() >= kMaxName) reader.Fail("a node's name of more than 255 bytes");
    const char c = reader.peek();
    if (c == '[') {
      reader.Take();
      const std::vector<std::string> values = ReadBracket(reader);
      if (names.size() * values.size() > kMaxNodes) reader.Fail("more than 65536 nodes");
      std::vector<std::string> longer;
      for (const std::string& name : names) {
        for (const std::string& value : values) longer.push_back(name + value);
      }
      names = std::move(longer);
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    if (byte <= ' ' || byte == 0x7f || c == ']' || c == '(' || c == ')') reader.Fail("unexpected character");
    reader.Take();
    for (std::string& name : names) name += c;
  }
  if (names.size() == 1 && names[0].empty()) reader.Fail("expected a node's name");
  return names;
}

}  // namespace

std::vector<std::string> ExpandNodeList(std::string_view text, const std::string& name) {
  Reader reader(text, name);
  std::vector<std::string> nodes;
  std::set<std::string> seen;
  do {
    for (std::string& node : ReadEntry(reader)) {
      if (nodes.size() == kMaxNodes) reader.Fail("more than 65536 nodes");
      if (!seen.insert(node).second) reader.Fail("node " + node + " twice");
      nodes.push_back(std::move(node));
    }
  } while (reader.Skip(','));
  return nodes;
}

std::vector<int> ExpandCounts(std::string_view text, const std::string& name) {
  Reader reader(text, name);
  std::vector<int> counts;
  const auto number = [&] {
    const int64_t value = Number(reader.Digits());
    if (value < 1 || value > static_cast<int64_t>(kMaxNodes)) reader.Fail("expected a number from 1 to 65536");
    return value;
  };
  do {
    const int64_t count = number();
    int64_t repeats = 1;
    if (reader.Skip('(')) {
      if (!reader.Skip('x')) reader.Fail("expected `x`");
      repeats = number();
      if (!reader.Skip(')')) reader.Fail("expected `)`");
    }
    if (counts.size() + static_cast<size_t>(repeats) > kMaxNodes) reader.Fail("more than 65536 counts");
    counts.insert(counts.end(), static_cast<size_t>(repeats), static_cast<int>(count));
  } while (reader.Skip(','));
  if (!reader.end()) reader.Fail("expected `,`");
  return counts;
}

int CountOfGpus(std::string_view text) {
  if (text.empty()) return -1;
  int64_t total = 0;
  while (!text.empty()) {
    // A comma within parentheses ("(IDX:0,2)") belongs to the entry.
    size_t end = 0;
    for (int depth = 0; end < text.size() && (text[end] != ',' || depth > 0); ++end) {
      depth += text[end] == '(' ? 1 : text[end] == ')' ? -1 : 0;
    }
    std::string_view entry = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    entry = entry.substr(0, entry.find('('));
    const size_t colon = entry.rfind(':');
    const std::string_view digits = colon == std::string_view::npos ? entry : entry.substr(colon + 1);
    if (digits.empty() || digits.size() > 5 || !std::all_of(digits.begin(), digits.end(), IsDigit)) return -1;
    total += Number(digits);
    if (total > static_cast<int64_t>(kMaxNodes)) return -1;
  }
  return static_cast<int>(total);
}

std::vector<NodeGpus> GpusOfJobDetails(std::string_view text, const std::string& name) {
  std::vector<NodeGpus> found;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const size_t begin = line.find_first_not_of(" \t");
    if (begin == std::string_view::npos || !line.substr(begin).starts_with("Nodes=")) continue;
    line.remove_prefix(begin + 6);
    const std::string_view nodes = line.substr(0, line.find_first_of(" \t"));
    if (line.find(" CPU_IDs=") == std::string_view::npos) continue;
    int gpus = 0;
    if (const size_t gres = line.find(" GRES="); gres != std::string_view::npos) {
      std::string_view rest = line.substr(gres + 6);
      rest = rest.substr(0, rest.find_first_of(" \t"));
      // Only entries of GPUs: "gpu:2(IDX:0-1),nic:1(IDX:0)".
      while (!rest.empty()) {
        size_t comma = 0;
        for (int depth = 0; comma < rest.size() && (rest[comma] != ',' || depth > 0); ++comma) {
          depth += rest[comma] == '(' ? 1 : rest[comma] == ')' ? -1 : 0;
        }
        const std::string_view entry = rest.substr(0, comma);
        if (entry.starts_with("gpu:")) gpus += std::max(0, CountOfGpus(entry));
        rest.remove_prefix(std::min(comma + 1, rest.size()));
      }
    }
    for (std::string& node : ExpandNodeList(nodes, name)) {
      if (found.size() == kMaxNodes) throw UsageError(name + ": more than 65536 nodes");
      found.push_back({std::move(node), gpus});
    }
  }
  return found;
}

}  // namespace ds
