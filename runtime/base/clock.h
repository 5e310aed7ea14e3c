// Wall-clock time as people and files see it. Durations are measured with std::chrono::steady_clock instead.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace ds {

int64_t UnixNanoseconds();

/// "2026-01-31T12:00:00.123Z"
std::string IsoTime(int64_t unix_ns);

/// "20260131T120000Z": sorts by time, fit for file names.
std::string CompactUtcTime(int64_t unix_ns);

/// "1 h 02 min", "3 min 20 s", "12 s"
std::string DurationText(double seconds);

}  // namespace ds
