#include "runtime/base/clock.h"

#include <chrono>
#include <cmath>
#include <cstdio>
#include <ctime>

namespace ds {
namespace {

std::string Format(const char* format, int64_t unix_ns) {
  time_t seconds = static_cast<time_t>(unix_ns / 1'000'000'000);
  std::tm utc{};
  ::gmtime_r(&seconds, &utc);
  char text[64];
  return std::string(text, std::strftime(text, sizeof text, format, &utc));
}

}  // namespace

int64_t UnixNanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string IsoTime(int64_t unix_ns) {
  char milliseconds[16];
  std::snprintf(milliseconds, sizeof milliseconds, ".%03dZ", static_cast<int>(unix_ns / 1'000'000 % 1000));
  return Format("%Y-%m-%dT%H:%M:%S", unix_ns) + milliseconds;
}

std::string CompactUtcTime(int64_t unix_ns) { return Format("%Y%m%dT%H%M%SZ", unix_ns); }

std::string DurationText(double seconds) {
  int64_t s = std::llround(seconds);
  char text[64];
  if (s >= 3600) {
    std::snprintf(text, sizeof text, "%lld h %02lld min", static_cast<long long>(s / 3600),
                  static_cast<long long>(s / 60 % 60));
  } else if (s >= 60) {
    std::snprintf(text, sizeof text, "%lld min %02lld s", static_cast<long long>(s / 60),
                  static_cast<long long>(s % 60));
  } else {
    std::snprintf(text, sizeof text, "%lld s", static_cast<long long>(s));
  }
  return text;
}

}  // namespace ds
