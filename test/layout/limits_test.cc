// Promise: a job whose places are left to the planner trains within a twentieth of its states on the device and a fifth
// of them on the host, measured, and with the result of a job that has room for everything.
#include <filesystem>

#include "runtime/plan/place.h"
#include "test/catch.h"
#include "test/layout/fake_gpu.h"
#include "test/layout/harness.h"

namespace ds::layout_test {
namespace {

/// Enough layers that two of them, and what a bucket needs, are a small part of the model.
JobSpec DeepJob() {
  JobSpec spec = TinySpec();
  spec.model.layers = 32;
  spec.model.hidden = 48;
  spec.model.ffn = 192;
  spec.precision = Precision::bf16;
  spec.training.steps = 3;
  spec.batch = {1, 1, 1};
  spec.data.sequence_length = 8;
  spec.zero.stage = 3;
  spec.zero.param_persistence_threshold = 0;
  spec.zero.reduce_bucket_size = 8192;
  return spec;
}

TEST_CASE("within a twentieth of the states on the device and a fifth on the host") {
  const double clip = GENERATE(0.0, 1.0);
  JobSpec spec = DeepJob();
  spec.gradient_clipping = clip;
  int64_t parameters = 0;
  for (const ParamUnit& unit : LayoutOf(spec, 1).units) parameters += unit.numel;
  const int64_t states = parameters * 18;  // working copy 2, master 4, moments 8, gradient 4

  MachineFile file;  // libraries are no states of the model
  file.device.kind = DeviceKind::cpu;
  file.libraries.library_bytes = 0;
  FakeMemory memory;
  RunOptions options{.ranks = 1};
  options.machine = file;
  options.gpu = [&](int) { return MakeFakeGpu(&memory); };
  const RunOutcome roomy = Run(spec, options);
  REQUIRE(roomy.error == "");
  REQUIRE(memory.most > states);

  spec.zero.offload_optimizer = spec.zero.offload_param = spec.memory.offload_activations = OffloadTarget::automatic;
  spec.memory.device_limit = states / 20;
  spec.memory.host_limit = states / 5;
  spec.memory.nvme_path = {NewDirectory()};
  std::filesystem::create_directories(spec.memory.nvme_path[0]);
  const PlacedJob placed = ChoosePlacement(spec, 1, DeviceKind::cpu, {}, MachineFor(file, DeviceKind::cpu));
  std::string why;
  for (const std::string& line : placed.why) why += line + "\n";
  INFO(why);
  memory = {};
  const RunOutcome tight = Run(placed.spec, options);
  RequireSame(roomy, tight);
  CAPTURE(states, memory.most, memory.most_host, tight.result.measured.file_peak);
  CHECK(memory.most <= states / 20);
  CHECK(memory.most_host <= states / 5);
  CHECK(tight.result.measured.file_peak > states * 3 / 4);
}

}  // namespace
}  // namespace ds::layout_test
