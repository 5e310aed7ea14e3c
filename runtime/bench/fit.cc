#include "runtime/bench/fit.h"

#include <algorithm>

namespace ds {

LinkRate FitLinkRate(const std::vector<std::pair<double, double>>& points) {
  // Minimises sum((latency u + slope v - 1)^2) with u = 1 / seconds, v = bytes / seconds.
  double uu = 0, uv = 0, vv = 0, u_sum = 0, v_sum = 0, best = 0;
  for (const auto& [bytes, seconds] : points) {
    if (!(bytes > 0) || !(seconds > 0)) continue;
    const double u = 1 / seconds, v = bytes / seconds;
    uu += u * u, uv += u * v, vv += v * v, u_sum += u, v_sum += v;
    best = std::max(best, v);
  }
  if (best == 0) return {};
  const double determinant = uu * vv - uv * uv;
  double latency = 0, slope = 0;
  if (determinant > 1e-12 * uu * vv) {
    latency = (u_sum * vv - v_sum * uv) / determinant;
    slope = (v_sum * uu - u_sum * uv) / determinant;
  }
  if (latency < 0) latency = 0, slope = v_sum / vv;  // the best line through the origin
  if (!(slope > 0)) return {0, best};
  return {latency, 1 / slope};
}

}  // namespace ds
