#include "runtime/plan/partition.h"

#include <algorithm>
#include <limits>
#include <regex>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/plan/passes.h"

namespace ds {
namespace {

const char* NameOf(SegmentKind kind) {
  switch (kind) {
    case SegmentKind::embedding:
      return "embedding";
    case SegmentKind::attention:
      return "attention";
    case SegmentKind::mlp:
      return "mlp";
    case SegmentKind::head:
      return "head";
  }
  return "?";
}

constexpr const char* kType = "type:";

std::vector<double> CountMatches(const ModelLayout& layout, const std::string& expression) {
  const std::regex regex(expression, std::regex::ECMAScript | std::regex::icase);
  std::vector<double> weights;
  for (const SegmentSpec& segment : layout.segments)
    weights.push_back(std::regex_search(NameOf(segment.kind), regex) ? 1 : 0);
  if (std::find(weights.begin(), weights.end(), 1.0) == weights.end())
    throw UsageError("parallel.partition: " + std::string(kType) + expression +
                     " finds no segment; their kinds are embedding, attention, mlp and head");
  return weights;
}

std::vector<double> ParameterCounts(const ModelLayout& layout) {
  std::vector<double> weights;
  for (const SegmentSpec& segment : layout.segments) {
    double count = 0;
    for (const ParamSpec& param : segment.params) count += static_cast<double>(param.shape.numel());
    weights.push_back(count);
  }
  return weights;
}

}  // namespace

std::vector<int> Balance(const std::vector<double>& weights, int parts) {
  using Score = std::pair<double, double>;  // the heaviest part, the sum of squares
  const size_t n = weights.size(), k = static_cast<size_t>(parts);
  std::vector<double> before(n + 1, 0);
  for (size_t i = 0; i < n; ++i) before[i + 1] = before[i] + weights[i];
  const Score never{std::numeric_limits<double>::infinity(), 0};
  std::vector<std::vector<Score>> best(k + 1, std::vector<Score>(n + 1, never));  // parts, items
  std::vector<std::vector<int>> begin(k + 1, std::vector<int>(n + 1, 0));
  best[0][0] = {0, 0};
  for (size_t p = 1; p <= k; ++p) {
    for (size_t end = p; end + (k - p) <= n; ++end) {
      for (size_t from = p - 1; from < end; ++from) {
        const double weight = before[end] - before[from];
        const Score score{std::max(best[p - 1][from].first, weight), best[p - 1][from].second + weight * weight};
        if (score < best[p][end]) best[p][end] = score, begin[p][end] = static_cast<int>(from);
      }
    }
  }
  std::vector<int> begins(k);
  for (size_t p = k, end = n; p > 0; --p) {
    begins[p - 1] = begin[p][end];
    end = static_cast<size_t>(begins[p - 1]);
  }
  return begins;
}

std::vector<double> SegmentSeconds(const ModelLayout& layout, const PlanOptions& options, const Machine& machine) {
  Plan plan;
  plan.options = options;
  plan.options.pipeline = {};
  plan.options.micro_batches = 1;
  OrderCompute(layout, plan);
  AddRecompute(layout, plan);
  PlaceState(layout, plan);
  std::vector<double> seconds(layout.segments.size(), 0);
  for (const Action& action : plan.actions)
    seconds[static_cast<size_t>(action.segment)] += ActionSeconds(layout, plan, action, machine);
  return seconds;
}

std::vector<int> CutSegments(const ModelLayout& layout, const PlanOptions& options, const ParallelConfig& parallel,
                             int chunks, const Machine& machine) {
  const int segments = static_cast<int>(layout.segments.size());
  if (chunks > segments) {
    const int64_t each = chunks / parallel.pipeline;
    throw UsageError("parallel.pipeline " + std::to_string(parallel.pipeline) +
                     (each > 1 ? " with " + std::to_string(each) + " chunks a stage" : "") + " cuts the model into " +
                     std::to_string(chunks) + " parts, and it has " + std::to_string(segments) +
                     " segments (the embedding, two of each layer, the head); write parallel.pipeline " +
                     std::to_string(segments / each) + " or less" +
                     (each > 1 ? ", or fewer parallel.virtual_stages" : ""));
  }
  if (parallel.partition == "uniform") return Balance(std::vector<double>(layout.segments.size(), 1), chunks);
  if (parallel.partition == "parameters") return Balance(ParameterCounts(layout), chunks);
  if (parallel.partition.starts_with(kType))
    return Balance(CountMatches(layout, parallel.partition.substr(std::string(kType).size())), chunks);
  return Balance(SegmentSeconds(layout, options, machine), chunks);
}

}  // namespace ds
