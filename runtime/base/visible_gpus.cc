#include "runtime/base/visible_gpus.h"

#include <algorithm>

namespace ds {
namespace {

constexpr std::string_view kGpu = "GPU-", kInstance = "MIG-";

/// As strtoul(3) begins to read: blanks, a sign, digits; what follows is left. Nothing: no number, or a negative one.
std::optional<size_t> LeadingNumber(std::string_view text) {
  const size_t begin = std::min(text.find_first_not_of(" \t\n\v\f\r"), text.size());
  text.remove_prefix(begin);
  if (text.starts_with('+')) text.remove_prefix(1);
  size_t digits = 0, value = 0;
  while (digits < text.size() && text[digits] >= '0' && text[digits] <= '9') {
    value = std::min<size_t>(value * 10 + static_cast<size_t>(text[digits] - '0'), 1 << 30);
    ++digits;
  }
  return digits > 0 ? std::optional(value) : std::nullopt;
}

/// The one of `candidates` whose UUID begins with `entry`; null: none, or several.
const GpuFacts* ByUuid(const std::vector<const GpuFacts*>& candidates, std::string_view entry) {
  const GpuFacts* found = nullptr;
  for (const GpuFacts* gpu : candidates) {
    if (!gpu->uuid.starts_with(entry)) continue;
    if (found) return nullptr;
    found = gpu;
  }
  return found;
}

/// What computes in a unit's place; null: nothing, it is divided into no parts.
const GpuFacts* Computing(const GpuUnit& unit) {
  if (!unit.divided) return &unit.gpu;
  return unit.instances.empty() ? nullptr : &unit.instances.front();
}

const GpuFacts* Find(const std::vector<GpuUnit>& units, std::string_view entry, std::string_view kind) {
  if (kind.empty()) {
    const std::optional<size_t> number = LeadingNumber(entry);
    return number && *number < units.size() ? Computing(units[*number]) : nullptr;
  }
  if (!entry.starts_with(kind)) return nullptr;
  std::vector<const GpuFacts*> candidates;
  for (const GpuUnit& unit : units) {
    if (kind == kGpu) candidates.push_back(&unit.gpu);
    for (const GpuFacts& instance : unit.instances) {
      if (kind == kInstance) candidates.push_back(&instance);
    }
  }
  const GpuFacts* found = ByUuid(candidates, entry);
  for (const GpuUnit& unit : units) {
    if (found == &unit.gpu) return Computing(unit);
  }
  return found;
}

std::string_view KindOf(std::string_view list) {
  if (list.starts_with(kGpu)) return kGpu;
  if (list.starts_with(kInstance)) return kInstance;
  return {};
}

}  // namespace

std::vector<GpuFacts> SelectVisible(const std::vector<GpuUnit>& units, std::optional<std::string_view> list) {
  std::vector<GpuFacts> visible;
  if (!list) {
    for (const GpuUnit& unit : units) {
      if (!unit.divided) visible.push_back(unit.gpu);
      visible.insert(visible.end(), unit.instances.begin(), unit.instances.end());
    }
    return visible;
  }
  std::vector<const GpuFacts*> chosen;
  const std::string_view kind = KindOf(*list);
  for (size_t begin = 0; begin <= list->size();) {
    const size_t end = std::min(list->find(',', begin), list->size());
    const GpuFacts* found = Find(units, list->substr(begin, end - begin), kind);
    if (!found) break;
    if (std::find(chosen.begin(), chosen.end(), found) != chosen.end()) return {};
    chosen.push_back(found);
    begin = end + 1;
  }
  for (const GpuFacts* gpu : chosen) visible.push_back(*gpu);
  return visible;
}

std::string VisibleList(const std::vector<GpuFacts>& gpus, std::optional<std::string_view> list) {
  const bool uuids = (list && !KindOf(*list).empty()) ||
                     std::any_of(gpus.begin(), gpus.end(), [](const GpuFacts& gpu) { return gpu.instance; });
  std::string text;
  for (const GpuFacts& gpu : gpus) text += (text.empty() ? "" : ",") + (uuids ? gpu.uuid : std::to_string(gpu.index));
  return text;
}

}  // namespace ds
