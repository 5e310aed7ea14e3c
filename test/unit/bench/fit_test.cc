// Promise: the latency and bandwidth of a machine file are those that the measured points have.
#include "runtime/bench/fit.h"

#include <cmath>

#include "test/catch.h"

namespace ds {
namespace {

using Points = std::vector<std::pair<double, double>>;

Points OnALine(double latency, double rate) {
  Points points;
  for (double bytes = 1024; bytes < 1e9; bytes *= 8) points.emplace_back(bytes, latency + bytes / rate);
  return points;
}

/// What the fit minimises.
double SquaredErrors(const Points& points, double latency, double rate) {
  double sum = 0;
  for (const auto& [bytes, seconds] : points) sum += std::pow((latency + bytes / rate) / seconds - 1, 2);
  return sum;
}

}  // namespace

TEST_CASE("points on a line give its latency and bandwidth") {
  for (const auto& [latency, rate] : Points{{50e-6, 1e9}, {3e-6, 190e9}, {2e-3, 3e7}}) {
    const LinkRate fit = FitLinkRate(OnALine(latency, rate));
    CHECK(fit.latency_seconds == Approx(latency).epsilon(1e-6));
    CHECK(fit.bytes_per_second == Approx(rate).epsilon(1e-6));
  }
}

TEST_CASE("of points that lie on no line the fit has the least relative errors") {
  Points points = OnALine(20e-6, 5e9);
  for (size_t i = 0; i < points.size(); ++i) points[i].second *= 1 + 0.2 * std::sin(7.0 * static_cast<double>(i));
  const LinkRate fit = FitLinkRate(points);
  const double least = SquaredErrors(points, fit.latency_seconds, fit.bytes_per_second);
  for (const double l : {0.98, 1.0, 1.02})
    for (const double r : {0.98, 1.0, 1.02})
      CHECK(SquaredErrors(points, fit.latency_seconds * l, fit.bytes_per_second * r) >= least * (1 - 1e-12));
}

TEST_CASE("a latency is never negative, a bandwidth never without bound") {
  // Small transfers that are relatively too fast.
  LinkRate fit = FitLinkRate({{1000, 1e-6}, {1e6, 2e-3}, {1e9, 2}});
  CHECK(fit.latency_seconds == 0);
  CHECK(fit.bytes_per_second == Approx(7.5e8).epsilon(1e-6));  // the best line through the origin
  // Large transfers that are no slower.
  fit = FitLinkRate({{1000, 1e-3}, {2000, 1e-3}, {4000, 0.9e-3}});
  CHECK(fit.latency_seconds == 0);
  CHECK(fit.bytes_per_second == Approx(4000 / 0.9e-3));
  // One size.
  fit = FitLinkRate({{1000, 1e-3}, {1000, 2e-3}});
  CHECK(fit.latency_seconds == 0);
  CHECK(fit.bytes_per_second == Approx(1e6));
}

TEST_CASE("nothing measured is no rate") {
  CHECK(FitLinkRate({}) == LinkRate{});
  CHECK(FitLinkRate({{0, 1}, {1, 0}}) == LinkRate{});
}

}  // namespace ds
