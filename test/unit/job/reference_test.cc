// docs/job-spec.md is checked against the code. To write its tables anew: DS_UPDATE_DOCS=1 build/bin/test-unit-job
#include "runtime/job/reference.h"

#include <cstdlib>

#include "runtime/base/file.h"
#include "runtime/job/job_spec.h"
#include "test/catch.h"
#include "test/unit/job/spec_helpers.h"

namespace ds {
namespace {

TEST_CASE("the tables of docs/job-spec.md are the code's") {
  const std::string path = std::string(DS_SOURCE_DIR) + "/docs/job-spec.md";
  const std::string written = ReadFile(path);
  const std::string wanted = FillInTables(written);
  if (const char* update = std::getenv("DS_UPDATE_DOCS"); update != nullptr && std::string(update) == "1") {
    WriteFileAtomically(path, wanted);
  } else {
    INFO("run DS_UPDATE_DOCS=1 build/bin/test-unit-job");
    CHECK(written == wanted);
  }
}

TEST_CASE("a document without a table's markers is refused") { CHECK_THROWS_AS(FillInTables("# empty\n"), UsageError); }

TEST_CASE("every file of configs/ reads") {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(DS_SOURCE_DIR) + "/configs")) {
    if (entry.path().extension() != ".yaml") continue;
    CAPTURE(entry.path().string());
    const int64_t stages = LoadJobSpec(entry.path().string(), {}, 4).parallel.pipeline;
    for (const int64_t ranks : {1, 2, 4}) {
      if (ranks % stages != 0) continue;
      const JobSpec spec = LoadJobSpec(entry.path().string(), {}, ranks);
      CHECK(spec.name == entry.path().stem().string());
      CHECK(ParseJobSpec(ToYaml(spec), "job.yaml", "/", {}, ranks) == spec);
    }
    ++count;
  }
  CHECK(count > 0);
}

}  // namespace
}  // namespace ds
