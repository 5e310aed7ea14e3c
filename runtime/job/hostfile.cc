#include "runtime/job/hostfile.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <numeric>

#include "runtime/base/error.h"
#include "runtime/base/input_file.h"
#include "runtime/base/text.h"
#include "runtime/base/value.h"

namespace ds {
namespace {

constexpr int kMostSlots = 65536;
constexpr size_t kMostSlotsInAll = 1 << 20;
constexpr size_t kMostErrors = 100;
constexpr size_t kLongestName = 253, kLongestLabel = 63;  // bytes (RFC 1035)
constexpr std::string_view kSlots = "slots=";

bool IsIpv4(const std::string& text) {
  in_addr address;
  return inet_pton(AF_INET, text.c_str(), &address) == 1;
}

/// An IPv6 address without its zone (fe80::1%eth0).
bool IsIpv6(const std::string& text) {
  const size_t zone = text.find('%');
  if (zone != std::string::npos && zone + 1 == text.size()) return false;
  in6_addr address;
  return inet_pton(AF_INET6, text.substr(0, zone).c_str(), &address) == 1;
}

/// 127.0.0.1 of ::ffff:127.0.0.1 (RFC 4291, 2.5.5.2), which is the same host; empty: it is no such address.
std::string MappedIpv4(const std::string& host) {
  in6_addr address;
  if (inet_pton(AF_INET6, host.c_str(), &address) != 1 || !IN6_IS_ADDR_V4MAPPED(&address)) return "";
  char text[INET_ADDRSTRLEN] = "";
  inet_ntop(AF_INET, &address.s6_addr[12], text, sizeof text);
  return text;
}

/// The first of a name's parts that is longer than RFC 1035 lets it be; empty: there is none.
std::string_view LongLabel(std::string_view host) {
  for (size_t begin = 0; begin < host.size();) {
    const size_t end = std::min(host.find('.', begin), host.size());
    if (end - begin > kLongestLabel) return host.substr(begin, end - begin);
    begin = end + 1;
  }
  return {};
}

bool IsWord(std::string_view text, std::string_view also) {
  if (text.empty()) return false;
  for (const char c : text) {
    const bool alphanumeric = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (!alphanumeric && also.find(c) == std::string_view::npos) return false;
  }
  return true;
}

/// A run of text without blanks, and the column where it starts.
struct Token {
  std::string_view text;
  int column = 0;
};

std::vector<Token> Split(std::string_view line) {
  std::vector<Token> tokens;
  size_t at = 0;
  while ((at = line.find_first_not_of(" \t", at)) != std::string_view::npos) {
    const size_t end = std::min(line.find_first_of(" \t", at), line.size());
    tokens.push_back({line.substr(at, end - at), static_cast<int>(at) + 1});
    at = end;
  }
  return tokens;
}

class Reader {
 public:
  explicit Reader(const std::string& name) { at_.file = name; }

  std::vector<HostSlots> Read(std::string_view text) {
    if (text.substr(0, 3) == "\xEF\xBB\xBF") text.remove_prefix(3);
    while (!text.empty() && errors_.size() < kMostErrors) {
      ++at_.line;
      const size_t end = std::min(text.find('\n'), text.size());
      ReadLine(text.substr(0, end));
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    if (hosts_.empty() && errors_.empty()) {
      at_.line = 1;
      Complain(1, "no host; write one host a line, HOST slots=N");
    }
    if (!errors_.empty()) throw UsageError(Join(errors_, "\n"));
    return std::move(hosts_);
  }

 private:
  void Complain(int column, const std::string& reason) {
    at_.column = column;
    errors_.push_back(at_.str() + ": " + reason);
  }

  void ReadLine(std::string_view line) {
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    line = line.substr(0, line.find('#'));
    const std::vector<Token> tokens = Split(line);
    if (tokens.empty()) return;
    const size_t before = errors_.size();
    HostSlots host;
    ReadHost(tokens[0], host);
    if (errors_.size() == before) ReadSlots(tokens, host);
    for (size_t i = 2; i < tokens.size() && errors_.size() == before; ++i) {
      Complain(tokens[i].column,
               Shown(tokens[i].text) + ": text after HOST slots=N; remove it, or begin a comment with #");
    }
    if (errors_.size() == before) Keep(tokens[0], std::move(host));
  }

  void ReadHost(const Token& token, HostSlots& out) {
    std::string_view text = token.text;
    int column = token.column;
    const auto complain = [&](const std::string& reason) { Complain(column, Shown(token.text) + ": " + reason); };
    if (text.substr(0, kSlots.size()) == kSlots) {
      return complain("a host is wanted before slots=; write HOST slots=N");
    }
    if (const size_t at = text.find('@'); at != std::string_view::npos) {
      const std::string_view user = text.substr(0, at);
      if (!IsWord(user, "._-$+") || user[0] == '-') {
        return complain("not a user name before '@'; write user@HOST slots=N");
      }
      out.user = user;
      text.remove_prefix(at + 1);
      column += static_cast<int>(at) + 1;
    }
    const bool bracketed = text.size() >= 2 && text.front() == '[' && text.back() == ']';
    std::string host(bracketed ? text.substr(1, text.size() - 2) : text);
    if (host.empty()) return complain("a host is wanted; write HOST slots=N");
    if (host[0] == '-') return complain("a host may not begin with '-' (programs would read it as an option)");
    if (bracketed || host.find_first_of(":[]%") != std::string::npos) {
      if (!IsIpv6(host) || !IsWord(host, ":.%_-")) {
        return complain("not an IPv6 address; write it bare or in brackets, without a port");
      }
      if (std::string v4 = MappedIpv4(host); !v4.empty()) host = v4;
    } else if (const std::string_view label = LongLabel(host); host.size() > kLongestName || !label.empty()) {
      return complain(
          label.empty()
              ? "a name of " + std::to_string(host.size()) + " bytes; the longest that can be looked up has 253"
              : "its part of " + std::to_string(label.size()) + " bytes is no name's; between dots are 63 at most");
    } else if (!IsWord(host, "._-")) {
      return complain("not a host; names have letters, digits, '.', '-' and '_'");
    } else if (host.find_first_not_of("0123456789.") == std::string::npos && !IsIpv4(host)) {
      return complain("not an IPv4 address; write four numbers from 0 to 255");
    }
    out.host = host;
  }

  void ReadSlots(const std::vector<Token>& tokens, HostSlots& out) {
    const Token& first = tokens[0];
    if (tokens.size() == 1) {
      return Complain(first.column + static_cast<int>(first.text.size()),
                      "slots= is absent; write " + Shown(first.text) + " slots=N");
    }
    const Token& token = tokens[1];
    if (token.text.substr(0, kSlots.size()) != kSlots) {
      return Complain(token.column, Shown(token.text) + ": slots=N is wanted here; write HOST slots=N, without blanks");
    }
    const std::string_view digits = token.text.substr(kSlots.size());
    const int column = token.column + static_cast<int>(kSlots.size());
    const auto complain = [&](const std::string& reason) {
      Complain(column, "slots=" + Shown(digits) + ": " + reason + "; write a whole number from 1 to 65536");
    };
    if (digits.empty()) return complain("a number is wanted after slots=");
    if (digits[0] == '-') return complain("negative, or not a number");
    if (digits.find_first_not_of("0123456789") != std::string_view::npos)
      return complain("not a number in ASCII digits");
    int slots = 0;
    const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), slots);
    if (result.ec != std::errc() || slots > kMostSlots) return complain("too large");
    if (slots == 0) return complain("a host without slots; remove the line");
    if (static_cast<size_t>(slots) > kMostSlotsInAll - slots_in_all_)
      return Complain(column, "slots=" + Shown(digits) + ": more than 1048576 slots in all; use fewer hosts or slots");
    slots_in_all_ += static_cast<size_t>(slots);
    out.slots.resize(static_cast<size_t>(slots));
    std::iota(out.slots.begin(), out.slots.end(), 0);
  }

  void Keep(const Token& token, HostSlots host) {
    Position where = at_;
    where.column = token.column;
    const auto [first, fresh] = seen_.emplace(CanonicalHost(host.host), where);
    if (!fresh) {
      return Complain(token.column, Shown(token.text) + ": the same host twice; the first is at " +
                                        first->second.str() + ", write one line with all its slots");
    }
    hosts_.push_back(std::move(host));
  }

  Position at_;
  std::vector<HostSlots> hosts_;
  std::vector<std::string> errors_;
  size_t slots_in_all_ = 0;
  std::map<std::string, Position> seen_;
};

}  // namespace

std::vector<HostSlots> ParseHostfile(const std::string& text, const std::string& name) {
  return Reader(name).Read(text);
}

std::vector<HostSlots> LoadHostfile(const std::string& path) {
  std::string text;
  try {
    text = ReadInputFile(path);
  } catch (const Error& error) {
    throw UsageError("hostfile: " + std::string(error.what()) +
                     "; give --hostfile a file that can be read, or `<(COMMAND)`");
  }
  return ParseHostfile(text, path);
}

bool IsLoopback(std::string_view host) {
  const std::string canonical = CanonicalHost(host);
  return canonical == "localhost" || canonical == "::1" || (canonical.substr(0, 4) == "127." && IsIpv4(canonical));
}

std::string CanonicalHost(std::string_view host) {
  const std::string lower = Lower(host);
  const size_t zone = lower.find('%');
  if (std::string v4 = MappedIpv4(lower); !v4.empty()) return v4;
  in6_addr address;
  if (inet_pton(AF_INET6, lower.substr(0, zone).c_str(), &address) != 1) return lower;
  char text[INET6_ADDRSTRLEN];
  inet_ntop(AF_INET6, &address, text, sizeof text);
  return text + (zone == std::string::npos ? "" : lower.substr(zone));
}

std::string Bracketed(std::string_view host) {
  const std::string text(host);
  return text.find(':') == std::string::npos ? text : "[" + text + "]";
}

}  // namespace ds
