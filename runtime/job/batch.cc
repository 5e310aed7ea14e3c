#include "runtime/job/batch.h"

#include <algorithm>

namespace ds {
namespace {

constexpr const char* kTrain = "deepspeed.train_batch_size";
constexpr const char* kMicro = "deepspeed.train_micro_batch_size_per_gpu";
constexpr const char* kAccumulation = "deepspeed.gradient_accumulation_steps";

std::string Text(int64_t value) { return std::to_string(value); }

/// "micro-batch 3 x accumulation 2 x 4 data-parallel ranks"
std::string Product(const std::string& micro, const std::string& accumulation, int64_t ranks) {
  return "micro-batch " + micro + " x accumulation " + accumulation + " x " + Text(ranks) + " data-parallel ranks";
}

/// `train` = `known` x ranks x the size that is wanted: adds a problem where that is not whole.
std::optional<int64_t> Divide(int64_t train, int64_t known, int64_t ranks, const std::string& product,
                              Problems& problems) {
  const int64_t part = known * ranks;
  if (train % part == 0) return train / part;
  const int64_t below = train / part * part;
  problems.Add(kTrain, "not " + product + ": " + Text(train) + " / " + Text(part) + " is not whole; write " +
                           (below > 0 ? Text(below) + " or " : "") + Text(below + part));
  return std::nullopt;
}

}  // namespace

void ResolveBatch(const DeepSpeedDraft& draft, int64_t ranks, Problems& problems) {
  if (!problems.Good({kTrain, kMicro, kAccumulation})) return;
  BatchConfig& batch = draft.spec.batch;
  std::optional<int64_t> train = draft.train_batch_size;
  std::optional<int64_t> micro = draft.micro_batch_size;
  std::optional<int64_t> accumulation = draft.accumulation;
  if (!train && !micro) {
    problems.Add(kTrain,
                 "train_batch_size = " + Product("?", accumulation ? Text(*accumulation) : "?", ranks) +
                     (accumulation ? " cannot be told from the accumulation alone" : ": none of the three is given") +
                     (!draft.auto_batch.empty() ? ", and auto has no trainer's arguments to come from here" : "") +
                     "; write train_batch_size, or train_micro_batch_size_per_gpu, or both" +
                     (!draft.auto_batch.empty() ? ", as with --set deepspeed.train_micro_batch_size_per_gpu=8" : ""));
    return;
  }
  if (!accumulation && !(train && micro)) accumulation = 1;
  if (!train) train = *micro * *accumulation * ranks;
  if (!micro) micro = Divide(*train, *accumulation, ranks, Product("?", Text(*accumulation), ranks), problems);
  if (!accumulation) accumulation = Divide(*train, *micro, ranks, Product(Text(*micro), "?", ranks), problems);
  if (!micro || !accumulation) return;
  const int64_t product = *micro * *accumulation * ranks;
  if (*train != product) {
    problems.Add(kTrain, "not " + Product(Text(*micro), Text(*accumulation), ranks) + " = " + Text(product) +
                             "; write " + Text(product) + ", or leave one of the three out");
    return;
  }
  batch = {*train, *micro, *accumulation};
  const std::pair<const char*, std::optional<int64_t>> given[] = {
      {kTrain, draft.train_batch_size}, {kMicro, draft.micro_batch_size}, {kAccumulation, draft.accumulation}};
  const int64_t resolved[] = {batch.train_batch_size, batch.micro_batch_size, batch.accumulation};
  for (int i = 0; i < 3; ++i) {
    if (given[i].second) continue;
    const bool written = std::count(draft.auto_batch.begin(), draft.auto_batch.end(), given[i].first) > 0;
    draft.spec.notes.push_back(std::string(given[i].first) + (written ? ": auto is " : " is ") + Text(resolved[i]) +
                               ".");
  }
}

}  // namespace ds
