#include "launcher/nodes/node_fit.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace ds {
namespace {

std::string Names(const Job& job, const std::vector<int>& nodes) {
  std::vector<std::string> names;
  for (int node : nodes) names.push_back(job.hosts[static_cast<size_t>(node)].host);
  return Join(names, ", ");
}

std::string Plural(size_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

}  // namespace

std::optional<BatchConfig> BatchForWidth(const BatchConfig& batch, int64_t width) {
  if (width < 1 || batch.train_batch_size % width != 0) return std::nullopt;
  const int64_t of_rank = batch.train_batch_size / width;
  int64_t micro = std::min(batch.micro_batch_size, of_rank);
  while (of_rank % micro != 0) --micro;
  return BatchConfig{batch.train_batch_size, micro, of_rank / micro};
}

NodeFit FitToNodes(const Job& job, const std::vector<int>& left, int64_t least) {
  const ParallelConfig& parallel = job.spec.parallel;
  const int64_t rest = job.foreign() ? 1 : parallel.tensor * parallel.pipeline * parallel.sequence;
  const size_t fewest = static_cast<size_t>(std::max<int64_t>(1, least));
  for (size_t count = left.size(); count >= fewest && count > 0; --count) {
    NodeFit fit;
    fit.nodes.assign(left.begin(), left.begin() + static_cast<std::ptrdiff_t>(count));
    fit.ranks = MapRanks(job.hosts, fit.nodes);
    fit.spec = job.spec;
    const int64_t world = static_cast<int64_t>(fit.ranks.size());
    std::string batch_text;
    if (!job.foreign()) {
      if (world % rest != 0) continue;
      const std::optional<BatchConfig> batch = BatchForWidth(job.spec.batch, world / rest);
      if (!batch) continue;
      fit.spec.batch = *batch;
      // As a worker reads it: whatever the spec has against this width is said now.
      fit.spec = ParseJobSpec(ToYaml(fit.spec), "job.yaml", "/", {}, static_cast<int>(world));
      fit.spec.notes = job.spec.notes;
      batch_text = ", micro-batch " + std::to_string(batch->micro_batch_size) + " x accumulation " +
                   std::to_string(batch->accumulation) + " x " + std::to_string(world / rest) + " = " +
                   std::to_string(batch->train_batch_size) + " samples a step";
    }
    fit.text = std::to_string(count) + " of " + Plural(job.hosts.size(), "node") + " (" + Names(job, fit.nodes) +
               "), " + Plural(fit.ranks.size(), "rank") + batch_text;
    if (count < left.size()) {
      const std::vector<int> spares(left.begin() + static_cast<std::ptrdiff_t>(count), left.end());
      fit.text += "; spare: " + Names(job, spares);
    }
    return fit;
  }
  if (left.size() < fewest) {
    throw UsageError(Plural(left.size(), "node") + " left, and launch.min_nodes is " + std::to_string(least));
  }
  throw UsageError("no data-parallel width on " + std::to_string(fewest) + " to " + Plural(left.size(), "node") +
                   " divides deepspeed.train_batch_size " + std::to_string(job.spec.batch.train_batch_size));
}

}  // namespace ds
