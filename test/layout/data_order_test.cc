// Promise: samples never cross rank counts wrongly: resumed on any number of ranks, with any micro-batch size and
// accumulation, training sees the samples that an uninterrupted run on one rank sees, in the same global batches; none
// is repeated or skipped.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <stdexcept>

#include "runtime/train/batches.h"
#include "test/catch.h"
#include "test/layout/harness.h"

namespace ds::layout_test {
namespace {

constexpr int64_t kSamples = 101, kTokens = 8;  // a prime: no batch size divides an epoch

/// A text of which each sample tells its number.
std::string NumbersFile(const char* format = "%07d ") {
  const std::string folder = NewDirectory();
  std::filesystem::create_directories(folder);
  std::ofstream file(folder + "/numbers.txt");
  for (int i = 0; i < kSamples; ++i) {
    char text[16];
    std::snprintf(text, sizeof text, format, i);
    file << text;
  }
  return folder + "/numbers.txt";
}

JobSpec NumbersSpec(const std::string& file) {
  JobSpec spec = TinySpec();
  spec.data.train = {file};
  spec.data.sequence_length = kTokens;
  return spec;
}

int64_t NumberOf(const int32_t* tokens) {
  std::string text;
  for (int64_t i = 0; i < kTokens; ++i) text += static_cast<char>(tokens[i]);
  return std::stoll(text);
}

/// Step -> the numbers of its samples, by their place in the global batch.
using Batches = std::map<int64_t, std::vector<int64_t>>;

void Note(Batches& batches, int64_t step, int64_t batch_size, const std::vector<MicroBatch>& micro_batches) {
  std::vector<int64_t>& batch = batches[step];
  batch.resize(static_cast<size_t>(batch_size), -1);
  for (const MicroBatch& micro_batch : micro_batches) {
    for (int64_t i = 0; i < micro_batch.tokens.shape[0]; ++i) {
      int64_t& place = batch.at(static_cast<size_t>(micro_batch.first_sample + i));
      if (place != -1) throw std::runtime_error("two ranks read one place of the global batch");
      place = NumberOf(micro_batch.tokens.as<int32_t>() + i * kTokens);
    }
  }
}

std::vector<int64_t> Stream(const Batches& batches) {
  std::vector<int64_t> stream;
  for (const auto& [step, batch] : batches) stream.insert(stream.end(), batch.begin(), batch.end());
  return stream;
}

/// Each epoch has each sample once; the last one, cut short, none twice.
void RequireEpochs(const std::vector<int64_t>& stream) {
  REQUIRE(stream.size() > 2 * kSamples);
  for (size_t begin = 0; begin < stream.size(); begin += kSamples) {
    const size_t end = std::min(stream.size(), begin + kSamples);
    const std::set<int64_t> seen(stream.begin() + static_cast<std::ptrdiff_t>(begin),
                                 stream.begin() + static_cast<std::ptrdiff_t>(end));
    REQUIRE(seen.size() == end - begin);
    REQUIRE(*seen.begin() >= 0);
    REQUIRE(*seen.rbegin() < kSamples);
  }
}

struct Leg {
  int ranks;
  int64_t accumulation, until;  // the last step
};

}  // namespace

TEST_CASE("readers of any number of ranks read the same global batches, over changes and the ends of epochs") {
  JobSpec spec = NumbersSpec(NumbersFile());
  const int64_t batch = spec.batch.train_batch_size = 24;
  const Leg legs[] = {{1, 4, 3}, {4, 2, 8}, {2, 3, 11}, {8, 1, 17}, {3, 4, 19}, {1, 1, 23}};
  Batches whole, changing;
  const auto read = [&](Batches& batches, const Leg& leg, int64_t first) {
    spec.batch.accumulation = leg.accumulation;
    spec.batch.micro_batch_size = batch / (leg.ranks * leg.accumulation);
    for (int rank = 0; rank < leg.ranks; ++rank) {
      BatchReader reader(spec, spec.data.train, true, rank, leg.ranks);
      REQUIRE(reader.samples() == kSamples);
      for (int64_t step = first; step <= leg.until; ++step) Note(batches, step, batch, reader.Read((step - 1) * batch));
    }
  };
  read(whole, {1, 1, 23}, 1);
  int64_t first = 1;
  for (const Leg& leg : legs) {
    read(changing, leg, first);
    first = leg.until + 1;
  }
  CHECK(changing == whole);
  RequireEpochs(Stream(whole));
}

TEST_CASE("training resumed on 1, 4, 2 and 8 ranks sees each sample as if it had never stopped") {
  JobSpec spec = NumbersSpec(NumbersFile());
  const int64_t batch = spec.batch.train_batch_size = 16;
  const auto train = [&](Batches& batches, const Leg& leg, const std::string& resume) {
    spec.batch.accumulation = leg.accumulation;
    spec.training.steps = leg.until;
    RunOptions options{.ranks = leg.ranks, .resume = resume};
    options.on_batch = [&](int, int64_t step, const std::vector<MicroBatch>& micro_batches) {
      Note(batches, step, spec.batch.train_batch_size, micro_batches);
    };
    const RunOutcome run = Run(spec, options);
    REQUIRE(run.error == "");
    for (const auto& event : run.events) CHECK(event.first != "data_changed");
    return run.result.checkpoint;
  };
  Batches whole, changing;
  train(whole, {1, 1, 20}, "");
  std::string checkpoint;
  for (const Leg& leg : {Leg{1, 4, 5}, Leg{4, 2, 9}, Leg{2, 1, 14}, Leg{8, 1, 20}})
    checkpoint = train(changing, leg, checkpoint);
  REQUIRE(whole.size() == 20);
  CHECK(changing == whole);
  RequireEpochs(Stream(whole));

  // Another global batch: the position counts samples, so the stream goes on where it was.
  spec.batch.train_batch_size = 12;
  train(changing, {2, 3, 26}, checkpoint);
  const std::vector<int64_t> stream = Stream(changing);
  CHECK(static_cast<int64_t>(stream.size()) == 20 * batch + 6 * 12);
  RequireEpochs(stream);
}

TEST_CASE("a resume on other data says so and keeps the position; ranks with different data are refused") {
  const std::string file = NumbersFile();
  JobSpec spec = NumbersSpec(file);
  spec.training.steps = 2;
  const RunOutcome before = Run(spec, RunOptions{});
  REQUIRE(before.error == "");
  std::filesystem::copy_file(NumbersFile("%06d  "), file, std::filesystem::copy_options::overwrite_existing);
  spec.training.steps = 3;
  const RunOutcome after = Run(spec, RunOptions{.resume = before.result.checkpoint});
  REQUIRE(after.error == "");
  std::string message;
  for (const auto& [kind, text] : after.events)
    if (kind == "data_changed") message = text;
  CHECK(message.find("data.train was 809 tokens in samples of 8, xxh64 ") != std::string::npos);
  CHECK(message.find("position 24 is kept") != std::string::npos);

  const std::string other = NumbersFile();
  RunOptions options{.ranks = 2};
  options.adjust = [&](int rank, JobSpec& own) {
    if (rank == 1) own.data.train = {other};
  };
  CHECK(Run(spec, options).error.find("data.train is not the same for rank 0 and rank 1") != std::string::npos);
}

}  // namespace ds::layout_test
