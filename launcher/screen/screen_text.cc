// How numbers, steps and the live view are written.
#include <algorithm>
#include <cmath>

#include "launcher/screen/screen.h"
#include "runtime/base/clock.h"
#include "runtime/base/format.h"
#include "runtime/base/text.h"

namespace ds {
namespace {

namespace pb = ::deepshard::v1;

std::string Colored(const std::string& text, const char* code, bool color) {
  return color ? std::string("\x1b[") + code + "m" + text + "\x1b[0m" : text;
}

std::string Bar(double part, int width) {
  int filled = static_cast<int>(std::lround(std::clamp(part, 0.0, 1.0) * width));
  return "[" + std::string(static_cast<size_t>(filled), '#') + std::string(static_cast<size_t>(width - filled), '.') +
         "]";
}

/// Cuts plain text (no escape sequences) to a width.
std::string Cut(const std::string& text, int columns) {
  return text.size() <= static_cast<size_t>(columns) ? text : text.substr(0, static_cast<size_t>(columns));
}

std::string RankRow(const pb::WorkerHealth& health, const std::string& host, bool foreign) {
  std::string row = Format("%4u  %-14.14s %-13.13s", health.rank(), host.c_str(), health.state().c_str());
  if (!foreign) {
    row += Format(" %8lld %9s %9.1f ms", static_cast<long long>(health.step()),
                  CountText(health.tokens_per_second()).c_str(), health.comm_exposed_ms());
  }
  return row + Format(" %9s", BytesText(health.memory()).c_str()) +
         (health.since_progress_seconds() > 5 ? "  " + DurationText(health.since_progress_seconds()) + " ago" : "");
}

}  // namespace

namespace {

/// Where the escape sequence at line[begin] (an ESC) ends, one past its last byte. ECMA-48: CSI to its final byte; OSC,
/// DCS, SOS, PM, APC to BEL or ST; otherwise intermediates and a final byte.
size_t EscapeEnd(std::string_view line, size_t begin) {
  if (begin + 1 >= line.size()) return line.size();
  const char kind = line[begin + 1];
  size_t at = begin + 2;
  if (kind == '[') {
    while (at < line.size() && static_cast<unsigned char>(line[at]) < 0x40) ++at;
    return std::min(at + 1, line.size());
  }
  if (std::string_view("]PX^_").find(kind) != std::string_view::npos) {
    for (; at < line.size(); ++at) {
      if (line[at] == '\a') return at + 1;
      if (line[at] == '\x1b') return std::min(at + 2, line.size());
    }
    return line.size();
  }
  at = begin + 1;
  while (at < line.size() && static_cast<unsigned char>(line[at]) < 0x30) ++at;
  return std::min(at + 1, line.size());
}

bool IsColor(std::string_view escape) { return escape.starts_with("\x1b[") && escape.ends_with('m'); }

/// What a terminal would show last of a line that goes back to its start, as progress bars do.
std::string_view LastDrawn(std::string_view line) {
  while (line.ends_with('\r')) line.remove_suffix(1);
  const size_t back = line.rfind('\r');
  return back == std::string_view::npos ? line : line.substr(back + 1);
}

}  // namespace

std::string TerminalLine(std::string_view line, bool color) {
  const std::string repaired = RepairUtf8(LastDrawn(line));
  line = repaired;
  std::string text;
  bool colored = false;
  for (size_t i = 0; i < line.size();) {
    const unsigned char c = static_cast<unsigned char>(line[i]);
    if (c == 0x1b) {
      const size_t end = EscapeEnd(line, i);
      const std::string_view escape = line.substr(i, end - i);
      if (color && IsColor(escape)) {
        text += escape;
        colored = escape != "\x1b[0m" && escape != "\x1b[m";
      }
      i = end;
    } else if (c == 0xc2 && i + 1 < line.size() && static_cast<unsigned char>(line[i + 1]) < 0xa0) {
      i += 2;  // C1 controls: some terminals read them as escape sequences
    } else {
      if (c == '\t' || (c >= 0x20 && c != 0x7f)) text += static_cast<char>(c);
      ++i;
    }
  }
  return colored ? text + "\x1b[0m" : text;
}

std::string WithoutColors(std::string_view line) {
  std::string text;
  for (size_t i = 0; i < line.size();) {
    const size_t end = line[i] == '\x1b' ? EscapeEnd(line, i) : i + 1;
    if (!IsColor(line.substr(i, end - i))) text += line.substr(i, end - i);
    i = end;
  }
  return text;
}

std::vector<std::string> LiveRows(const LiveState& state, int columns, int rows) {
  const ScreenJob& job = state.job;
  bool foreign = job.steps == 0;
  std::vector<std::string> result;
  auto add = [&](const std::string& text, const char* code) {
    result.push_back(Colored(Cut(text, columns - 1), code, state.color && code));
  };
  add(job.name + "  " + Count(static_cast<int64_t>(job.rank_hosts.size()), "rank") + "  " + job.run_directory, "1");
  if (!foreign) {
    double part = static_cast<double>(state.last.step()) / static_cast<double>(job.steps);
    add(Bar(part, std::clamp(columns / 4, 10, 40)) + " " + StepCount(state.last, job.steps) +
            TimeLeftText(state.left_seconds),
        nullptr);
    add(StepValues(state.last), nullptr);
  }
  std::string head = Format("%4s  %-14s %-13s", "rank", "host", "state");
  if (!foreign) head += Format(" %8s %9s %12s", "step", "tokens/s", "comm wait");
  add(head + Format(" %9s", "memory"), "2");
  // One row less than the terminal has, for the cursor, and one for the rest of the ranks.
  size_t room = static_cast<size_t>(std::max(0, rows - static_cast<int>(result.size()) - 2));
  size_t shown = std::min(room, state.ranks.size());
  for (size_t i = 0; i < shown; ++i) {
    const pb::WorkerHealth& health = state.ranks[i];
    const char* code = health.since_progress_seconds() > 20 ? "33" : nullptr;
    add(RankRow(health, job.rank_hosts[i], foreign), code);
  }
  if (shown < state.ranks.size())
    add("  and " + Count(static_cast<int64_t>(state.ranks.size() - shown), "rank") + " more", "2");
  return result;
}

}  // namespace ds
