// Whatever bytes come in, the readers give a value or a UsageError, and nothing else: the same mutations every run.
#include <random>

#include "runtime/base/json.h"
#include "runtime/job/filter.h"
#include "runtime/job/hostfile.h"
#include "runtime/job/yaml.h"
#include "test/catch.h"
#include "test/unit/job/spec_helpers.h"

namespace ds {
namespace {

class Mutator {
 public:
  std::string operator()(std::string text) {
    static const std::string pieces[] = {"\n",     "\r",
                                         "\t",     " ",
                                         ":",      "@",
                                         "[",      "]",
                                         "{",      "}",
                                         ",",      "\"",
                                         "'",      "#",
                                         "-",      "&a ",
                                         "*a",     "\xEF\xBB\xBF",
                                         "\xFF",   std::string(1, '\0'),
                                         "1e999",  "slots=",
                                         "!!str ", "|",
                                         "auto",   "null"};
    for (int edits = 1 + static_cast<int>(random_() % 4); edits > 0; --edits) {
      const size_t at = text.empty() ? 0 : random_() % text.size();
      switch (random_() % 4) {
        case 0:
          text.insert(at, pieces[random_() % std::size(pieces)]);
          break;
        case 1:
          text.erase(at, 1 + random_() % 5);
          break;
        case 2:
          text.insert(at, text.substr(at, random_() % 40));
          break;
        default:
          if (!text.empty()) text[at] = static_cast<char>(random_());
      }
    }
    return text;
  }

 private:
  std::mt19937 random_{20};
};

/// Runs `read` on mutations of `seed`; counts what is refused. Any other exception fails the test.
template <typename Read>
int Refused(const std::string& seed, int times, Read read) {
  Mutator mutate;
  int refused = 0;
  for (int i = 0; i < times; ++i) {
    const std::string text = mutate(seed);
    CAPTURE(i, text);
    try {
      read(text);
    } catch (const UsageError& error) {
      ++refused;
      CHECK(std::string(error.what()).size() > 10);
    } catch (const std::exception& error) {
      FAIL(error.what());
    }
  }
  return refused;
}

TEST_CASE("mutated inputs are read or refused") {
  const std::string hosts = "# hosts\nw0 slots=4\nal@w1 slots=2 # x\n[::1] slots=1\n127.0.0.2 slots=3\n";
  CHECK(Refused(hosts, 3000, [](const std::string& text) { ParseHostfile(text, "hosts"); }) > 300);
  const auto parsed = ParseHostfile(hosts, "hosts");
  CHECK(Refused("w0:1,2@w1@[::1]:0", 3000, [&](const std::string& text) {
          ApplyFilters(parsed, {text, {}, {}, {}});
        }) > 300);
  const std::string json = "{\"a\": [1, 2.5e3, \"x\\u00e9\\ud83d\\ude00\"], \"b\": {\"c\": null, \"d\": true}} // e";
  JsonOptions lenient;
  lenient.lenient = true;
  CHECK(Refused(json, 3000, [&](const std::string& text) { ParseJson(text, "f", lenient); }) > 300);
  const std::string job = TinyJob(
      "job: {name: x, seed: 5}\nlaunch:\n  env: {A: 'b'}\n  restarts: 2\ndeepspeed:\n  train_batch_size: 4\n"
      "  zero_optimization: {stage: 2, overlap_comm: true}\n  optimizer:\n    type: Adam\n    params: {lr: 1e-3, "
      "betas: [0.9, 0.95]}\n"
      "  scheduler: {type: WarmupLR, params: {warmup_num_steps: 5}}\n");
  CHECK(Refused(job, 3000, [](const std::string& text) {
          const JobSpec spec = Parse(text);
          if (!(Parse(ToYaml(spec)) == spec)) throw std::logic_error("the resolved spec reads back as another one");
        }) > 300);
  CHECK(Refused("{train: [a, 'b'], x: &y {z: 1e3}}", 3000, [](const std::string& text) {
          Parse(TinyJob(), {{"data", text}});
        }) > 300);
}

}  // namespace
}  // namespace ds
