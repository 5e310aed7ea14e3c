#include "runtime/run/step_line.h"

#include <cmath>

#include "runtime/base/clock.h"
#include "runtime/base/format.h"
#include "runtime/base/text.h"

namespace ds {

namespace pb = ::deepshard::v1;

std::string StepCount(const pb::StepRecord& record, int64_t steps) {
  return Format("step %lld/%lld", static_cast<long long>(record.step()), static_cast<long long>(steps));
}

std::string TimeLeftText(double seconds) { return seconds < 0 ? "" : "  left " + DurationText(seconds); }

std::string StepValues(const pb::StepRecord& record) {
  if (record.step() == 0) return "no step yet";
  std::string text = Format("loss %.4f  grad %.3g  lr %.2e  %s tokens/s  %.0f ms", record.loss(), record.grad_norm(),
                            record.lr(), CountText(record.tokens_per_second()).c_str(), record.step_ms());
  if (record.comm_exposed_ms() > 0) text += Format(" (%.0f ms waiting for peers)", record.comm_exposed_ms());
  if (record.has_validation_loss()) text += Format("  validation %.4f", record.validation_loss());
  if (record.skipped()) {
    const bool overflow = record.has_loss_scale() && std::isfinite(record.loss());
    text += overflow ? Format("  skipped: overflow at loss scale %.6g", record.loss_scale()) : "  skipped: not finite";
  }
  return text;
}

std::string CountText(double value) {
  if (value >= 1e9) return Format("%.3gG", value * 1e-9);
  if (value >= 1e6) return Format("%.3gM", value * 1e-6);
  if (value >= 1e3) return Format("%.3gk", value * 1e-3);
  return Format("%.3g", value);
}

std::string BytesText(int64_t bytes) {
  double value = static_cast<double>(bytes);
  if (value >= 1024.0 * 1024 * 1024) return Format("%.1f GiB", value / (1024.0 * 1024 * 1024));
  return Format("%.0f MiB", value / (1024.0 * 1024));
}

std::string StepLine(const pb::StepRecord& record, int64_t steps, double left_seconds) {
  return StepCount(record, steps) + "  " + StepValues(record) + TimeLeftText(left_seconds);
}

}  // namespace ds
