// What the job monitor's files share: spans of its clock, and how ranks and spans are written.
#pragma once

#include <chrono>
#include <cstdio>
#include <string>

#include "launcher/run/progress_watch.h"

namespace ds {

inline MonitorTime After(MonitorTime now, double seconds) {
  return now + std::chrono::duration_cast<MonitorTime::duration>(std::chrono::duration<double>(seconds));
}

/// Seconds.
inline double Between(MonitorTime earlier, MonitorTime later) {
  return std::chrono::duration<double>(later - earlier).count();
}

inline std::string Seconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g s", seconds);
  return text;
}

inline std::string Who(int rank, const std::string& host) { return "rank " + std::to_string(rank) + " on " + host; }

}  // namespace ds
