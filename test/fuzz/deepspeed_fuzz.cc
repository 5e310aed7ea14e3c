// DeepSpeed configurations, JSON with HJSON's comments: as `deepspeed: PATH` of a small job, and inline in its YAML.
#include "runtime/base/error.h"
#include "runtime/job/job_spec.h"
#include "test/fuzz/fuzz.h"

using namespace ds;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const fuzz::MemoryFile file(fuzz::View(data, size));
  const std::string job = "model: {preset: gpt2-tiny}\ndata: {train: train.txt}\ntraining: {steps: 20}\ndeepspeed: ";
  const auto read = [&](const std::string& text) { return ParseJobSpec(text, "job.yaml", "/no-such-folder", {}, 2); };
  const fuzz::Memory limit{4000, 4 << 20};
  JobSpec spec;
  if (fuzz::Guarded(size, limit, {file.path() + ":", "job.yaml:"}, [&] { spec = read(job + file.path()); })) {
    const std::string printed = ToYaml(spec);
    try {
      fuzz::Check(read(printed) == spec, "the resolved spec reads back as another one", printed);
    } catch (const Error& error) {
      fuzz::Check(false, error.what(), printed);
    }
  }
  return 0;
}
