// Promise: kernels are timed on whatever device there is, told beside their limits, and kept as a machine file has
// them.
#include "runtime/bench/kernels.h"

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "runtime/base/error.h"
#include "runtime/bench/row_kernels.h"
#include "test/catch.h"
#include "test/layout/fake_gpu.h"

namespace ds {
namespace {

/// What a run of `work` measures, and the table's text.
std::pair<MachineFile, std::string> Run(Gpu* gpu, const BenchWork& work, double seconds) {
  MachineFile file;
  file.written = file.host = file.program = file.device.name = "test";
  char* text = nullptr;
  size_t size = 0;
  std::FILE* const out = ::open_memstream(&text, &size);
  {
    BenchDevice device(gpu, 1, WorkspaceOf(work));
    BenchTable table(out);
    DevicePeaks peaks;
    peaks.flops[DType::f32] = 1e12;
    peaks.memory_bytes = 1e11;
    try {
      MeasureKernels(device, work, peaks, Budget(seconds), table, file);
    } catch (const RuntimeError& error) {
      table.Say(error.what());
    }
  }
  std::fclose(out);
  std::pair<MachineFile, std::string> result{file, std::string(text, size)};
  std::free(text);
  return result;
}

BenchWork Tiny() {
  BenchWork work = WorkOfPreset("llama-tiny", DeviceKind::cpu);
  MatMulKey twice = work.products.front().key;
  twice.epilogue = MatMulEpilogue::bias;  // the file does not tell it from the product without a bias
  work.products.push_back({"with a bias", twice});
  work.attention.push_back(work.attention.front());
  return work;
}

}  // namespace

TEST_CASE("a device's kernels are measured into a file that reads back", "[slow]") {
  const std::unique_ptr<Gpu> fake = layout_test::MakeFakeGpu();
  for (Gpu* gpu : {static_cast<Gpu*>(nullptr), fake.get()}) {
    const BenchWork work = Tiny();
    const auto& [file, text] = Run(gpu, work, 300);  // more than it takes on a machine that is busy otherwise
    INFO(text);
    CHECK(file.matmul.size() == work.products.size() - 1);
    CHECK(file.attention.size() == 2);
    for (const AttentionRate& rate : file.attention) CHECK(rate.flops_per_second > 1e5);
    CHECK(ParseMachineFile(ToYaml(file), "file") == file);
    for (const RowKernel& kernel : RowKernelsOf(work, DeviceKind::cpu)) {
      CHECK(kernel.bytes >= int64_t{64} << 20);
      CHECK(text.find(kernel.what) != std::string::npos);
    }
    CHECK(text.find("rms_norm forward") != std::string::npos);
    CHECK(text.find("swiglu backward") != std::string::npos);
    CHECK(text.find("left out") == std::string::npos);
    CHECK(text.find("failed") == std::string::npos);
  }
}

TEST_CASE("a kernel that fails is told, and the others are measured") {
  BenchWork work = Tiny();
  work.products.resize(3);
  work.products[1].key.c = DType::u8;  // no product has such a result
  work.attention.resize(1);
  const auto& [file, text] = Run(nullptr, work, 5);
  INFO(text);
  CHECK(file.matmul.size() == 2);
  CHECK(file.attention.size() == 2);
  CHECK(text.find("failed: ") != std::string::npos);
  CHECK(text.find("of the kernels 1 failed") != std::string::npos);
}

TEST_CASE("what finds no time is told and left out") {
  const BenchWork work = Tiny();
  const auto& [file, text] = Run(nullptr, work, 1e-9);
  CHECK(file.matmul.empty());
  CHECK(file.attention.empty());
  size_t lines = 0;
  for (size_t at = 0; (at = text.find("left out: no time", at)) != std::string::npos; ++at) ++lines;
  CHECK(lines == work.products.size() + work.attention.size() + RowKernelsOf(work, DeviceKind::cpu).size());
}

}  // namespace ds
