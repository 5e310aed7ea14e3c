// data.tokenizer: a file's id and vocabulary enter the spec; a resolved spec reads without the file.
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/job/tokenizer_file.h"
#include "runtime/job/tokenizer_keys.h"
#include "test/catch.h"
#include "test/unit/job/spec_helpers.h"

namespace ds {
namespace {

const std::string kModel = DS_SOURCE_DIR "/test/data/tokenizers/own.model";  // 400 pieces

/// A job file in a folder of its own, beside a copy of the model.
struct Folder {
  std::string path = "/tmp/ds-test-tokenizer-" + std::to_string(::getpid());
  Folder() {
    std::filesystem::create_directories(path);
    std::filesystem::copy_file(kModel, path + "/own.model", std::filesystem::copy_options::overwrite_existing);
  }
  ~Folder() { std::filesystem::remove_all(path); }
};

std::string Failure(const std::string& job, const std::vector<Override>& overrides) {
  try {
    LoadJobSpec(job, overrides, 2);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("a tokenizer file gives the vocabulary and its id") {
  const JobSpec bytes = Parse(TinyJob());
  CHECK(bytes.data.tokenizer_id == "bytes");
  const JobSpec spec = Parse(TinyJob(), {{"data.tokenizer", kModel},
                                         {"model.preset", "null"},
                                         {"model.layers", "2"},
                                         {"model.hidden", "64"},
                                         {"model.heads", "4"},
                                         {"model.max_positions", "128"}});
  CHECK(spec.data.tokenizer == kModel);
  CHECK(spec.data.tokenizer_id == SentencePieceId(ReadFile(kModel)));
  CHECK(spec.model.vocabulary == 400);
  CHECK(Parse(TinyJob(), {{"data.tokenizer", kModel}, {"model.vocabulary", "512"}}).model.vocabulary == 512);
  CHECK(Has(SpecFailure(TinyJob(), {{"data.tokenizer", kModel}, {"model.vocabulary", "399"}}),
            "--set: model.vocabulary: 399: fewer than the 400 tokens of data.tokenizer; write 400 or more"));
  CHECK(Has(SpecFailure(TinyJob(), {{"data.tokenizer", DS_SOURCE_DIR "/README.md"}}), "no SentencePiece model"));
  CHECK(Has(SpecFailure(TinyJob(), {{"data.tokenizer", "/tmp"}}), "not a regular file"));
  CHECK(Has(SpecFailure(TinyJob(), {{"data.tokenizer", "''"}}), "an empty name"));
}

TEST_CASE("a resolved spec reads without its tokenizer's file; a job file does not") {
  Folder folder;
  const std::string job = folder.path + "/job.yaml";
  std::ofstream(job) << TinyJob();
  const std::vector<Override> relative = {{"data.tokenizer", "own.model"}, {"model.vocabulary", "400"}};
  const JobSpec spec = LoadJobSpec(job, relative, 2);
  CHECK(spec.data.tokenizer == folder.path + "/own.model");
  const std::string yaml = ToYaml(spec);
  CHECK(Parse(yaml) == spec);

  std::filesystem::remove(folder.path + "/own.model");
  CHECK(Parse(yaml) == spec);
  CHECK(Has(Failure(job, relative), "there is no tokenizer file " + folder.path + "/own.model"));
  std::ofstream(job) << yaml;
  CHECK(Has(Failure(job, {}), "there is no tokenizer file " + folder.path + "/own.model"));
  CHECK_THROWS_AS(CheckTokenizer(spec), UsageError);
  std::filesystem::copy_file(DS_SOURCE_DIR "/test/data/tokenizers/prefixed.model", folder.path + "/own.model");
  CHECK(Has(Failure(job, {}), "data.tokenizer_id: " + spec.data.tokenizer_id));
}

}  // namespace ds
