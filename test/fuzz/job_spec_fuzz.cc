// Job specs: YAML, then any number of --set: YAML %% KEY=VALUE %% KEY=VALUE ... What is read prints as a spec that
// reads back to the same.
#include "runtime/base/error.h"
#include "runtime/job/job_spec.h"
#include "runtime/job/yaml.h"
#include "test/fuzz/fuzz.h"

using namespace ds;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::vector<std::string> parts = fuzz::Parts(fuzz::View(data, size));
  std::vector<Override> overrides;
  for (size_t i = 1; i < parts.size(); ++i) {
    const size_t equals = std::min(parts[i].find('='), parts[i].size());
    overrides.push_back({parts[i].substr(0, equals), parts[i].substr(std::min(equals + 1, parts[i].size()))});
  }
  const auto read = [](const std::string& text, const std::vector<Override>& set) {
    return ParseJobSpec(text, "job.yaml", "/no-such-folder", set, 2);
  };
  JobSpec spec;
  const fuzz::Memory limit{4000, 48 << 20};
  const std::vector<std::string> places{"job.yaml:", "--set", "/"};  // "/...": a DeepSpeed configuration's file
  if (!fuzz::Guarded(size, limit, places, [&] { spec = read(parts[0], overrides); })) return 0;
  const std::string printed = ToYaml(spec);
  try {
    fuzz::Check(read(printed, {}) == spec, "the resolved spec reads back as another one", printed);
  } catch (const Error& error) {
    fuzz::Check(false, error.what(), printed);
  }
  return 0;
}
