#include "runtime/bench/table.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>

#include "runtime/base/error.h"
#include "runtime/base/terminal.h"

namespace ds {
namespace {

std::string Scaled(double value, const char* const* units, int count) {
  int unit = 0;
  while (unit + 1 < count && value >= 999.5) value /= 1000, ++unit;
  char text[48];
  std::snprintf(text, sizeof text, "%.*f %s", value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2, value, units[unit]);
  return text;
}

/// Columns of a character a byte: texts here are ASCII.
std::string Line(const std::string& what, const std::string& shape, const std::string& achieved,
                 const std::string& limit, const std::string& percent, const std::string& note) {
  char text[512];
  std::snprintf(text, sizeof text, "  %-34s %-30s %13s %13s %6s  %s", what.c_str(), shape.c_str(), achieved.c_str(),
                limit.c_str(), percent.c_str(), note.c_str());
  std::string line = text;
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

}  // namespace

std::string RateText(double value, RateUnit unit) {
  static const char* const kFlops[] = {"FLOP/s", "kFLOP/s", "MFLOP/s", "GFLOP/s", "TFLOP/s", "PFLOP/s"};
  static const char* const kBytes[] = {"B/s", "kB/s", "MB/s", "GB/s", "TB/s", "PB/s"};
  static const char* const kSeconds[] = {"ns", "us", "ms", "s"};
  switch (unit) {
    case RateUnit::flops:
      return Scaled(value, kFlops, 6);
    case RateUnit::bytes:
      return Scaled(value, kBytes, 6);
    case RateUnit::seconds:
      return Scaled(value * 1e9, kSeconds, 4);
  }
  return "?";
}

std::string LineText(const BenchLine& line) {
  std::string percent;
  if (line.limit > 0 && line.achieved > 0)
    percent = std::to_string(std::lround(100 * line.achieved / line.limit)) + "%";
  return Line(line.what, line.shape, line.achieved > 0 ? RateText(line.achieved, line.unit) : "-",
              line.limit > 0 ? RateText(line.limit, line.unit) : "-", percent, line.note);
}

BenchTable::BenchTable(std::FILE* out) : out_(out), live_(IsTerminal(STDERR_FILENO)) {}

BenchTable::~BenchTable() { Clear(); }

void BenchTable::Section(const std::string& title) {
  Say((first_ ? "" : "\n") + title);
  Say(Line("what", "shape", "achieved", "limit", "", ""));
  first_ = false;
}

void BenchTable::Say(const std::string& text) {
  Clear();
  if (std::fprintf(out_, "%s\n", text.c_str()) < 0 || std::fflush(out_) != 0)
    throw SystemError("cannot write the table", errno);
}

void BenchTable::Add(const BenchLine& line) { Say(LineText(line)); }

void BenchTable::Progress(const std::string& what) {
  if (!live_) return;
  const size_t columns = static_cast<size_t>(std::max(TerminalColumns(STDERR_FILENO) - 4, 20));
  std::fprintf(stderr, "\r\x1b[K%s ...", what.substr(0, columns - 4).c_str());
  std::fflush(stderr);
  shown_ = true;
}

void BenchTable::Clear() {
  if (!shown_) return;
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
  shown_ = false;
}

}  // namespace ds
