// The machine file: what is written reads back as the same; what is wrong in one is named with its place.
#include "runtime/plan/machine_file.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "test/catch.h"
#include "test/plan/machines.h"

namespace ds {
namespace {

bool Has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::string Refusal(const std::string& text) {
  try {
    ParseMachineFile(text, "m.yaml");
  } catch (const UsageError& e) {
    return e.what();
  }
  return "";
}

/// The full file's text with the first `from` replaced.
std::string With(const std::string& from, const std::string& to) {
  std::string text = ToYaml(test::FullMachineFile());
  const size_t at = text.find(from);
  if (at == std::string::npos) throw std::logic_error("the file has no " + from);
  return text.replace(at, from.size(), to);
}

/// The line and column of the first `part` in the text that With(part, part) is, as errors print them.
std::string PlaceOf(const std::string& part) {
  const std::string text = ToYaml(test::FullMachineFile());
  const size_t at = text.find(part), begin = text.rfind('\n', at) + 1;
  return "m.yaml:" + std::to_string(std::count(text.begin(), text.begin() + static_cast<long>(at), '\n') + 1) + ":" +
         std::to_string(at - begin + 1) + ": ";
}

TEST_CASE("a machine file reads back as it was written") {
  MachineFile file = test::FullMachineFile();
  CHECK(ParseMachineFile(ToYaml(file), "m.yaml") == file);

  MachineFile least;
  least.host = "h";
  least.device.name = "a CPU: fast # cheap";
  CHECK(ParseMachineFile(ToYaml(least), "m.yaml") == least);
  least.libraries.library_bytes = 0;  // measured, and none: not the same as not measured
  CHECK(ParseMachineFile(ToYaml(least), "m.yaml") == least);

  file.memory_bytes_per_second = 0x1.fffffffffffffp+40;  // bit for bit
  CHECK(ParseMachineFile(ToYaml(file), "m.yaml").memory_bytes_per_second == 0x1.fffffffffffffp+40);
}

TEST_CASE("a machine file is read from disk; an absent one is a user's error") {
  const std::filesystem::path path = std::filesystem::temp_directory_path() / "ds_machine_file_test.yaml";
  std::ofstream(path) << ToYaml(test::FullMachineFile());
  CHECK(ReadMachineFile(path) == test::FullMachineFile());
  std::filesystem::remove(path);
  CHECK_THROWS_AS(ReadMachineFile(path), UsageError);
}

TEST_CASE("the documentation's example is a machine file") {
  const std::string page = ReadFile(std::string(DS_SOURCE_DIR) + "/docs/machine-file.md");
  std::string text, line;
  for (std::istringstream lines(page.substr(page.find("## Example"))); std::getline(lines, line);)
    if (line.starts_with("    ")) text += line.substr(4) + "\n";
  const MachineFile file = ParseMachineFile(text, "docs/machine-file.md");
  CHECK(file.libraries.library_bytes == 560 << 20);
  CHECK(file.matmul_choices.size() == 1);
  CHECK(ParseMachineFile(ToYaml(file), "m.yaml") == file);
}

TEST_CASE("what a machine file must not have is named with line and column") {
  struct Case {
    std::string from, to, place, reason;
  };
  const std::vector<Case> cases = {
      {"host: node-1", "hots: node-1", "host: node-1", "hots: unknown key; the nearest is host"},
      {"name: \"NVIDIA H200\"", "nmae: x", "name: \"NVIDIA H200\"",
       "device.nmae: unknown key; the nearest is device.name"},
      {"host: node-1\n", "host: node-1\nhost: node-2\n", "", "host"},
      {"host: node-1\n", "", "", "host: absent"},
      {"kind: cuda", "kind: tpu", "cuda\n", "device.kind: tpu: not one of the choices; write one of cpu, cuda"},
      {"count: 8", "count: 0", "8\n  memory", "device.count: 0: too small"},
      {"count: 8", "count: 1.5", "8\n  memory", "device.count: 1.5"},
      {"count: 8", "count: [8]", "8\n  memory", "device.count: a list"},
      {"threads: 16", "threads: 0", "16, bytes_per", "host_optimizer.threads: 0: too small"},
      {"threads: 16", "thread: 16", "threads: 16", "host_optimizer.thread: unknown key"},
      {"threads: 16, ", "", "{threads: 16", "host_optimizer.threads: absent"},
      {"bf16: 9.89e+14", "bf16: 0", "9.89e+14", "peak_flops.bf16: 0: too small; write 1 or more"},
      {"bf16: 9.89e+14", "bf16: 1e25", "9.89e+14", "peak_flops.bf16: 1e25: too large"},
      {"seconds: 3e-05", "seconds: 1e-13", "3e-05}", "links.collectives[0].points[1].seconds: 1e-13: too small"},
      {"seconds: 3e-05", "seconds: 3601", "3e-05}", "links.collectives[0].points[1].seconds: 3601: too large"},
      {"latency_seconds: 1e-05", "latency_seconds: 3601", "1e-05, bytes", "links.host_to_device.latency_seconds"},
      {"bf16: 9.89e+14", "bf16: nan", "9.89e+14", "peak_flops.bf16: nan"},
      {"bf16: 9.89e+14", "bf16: .inf", "9.89e+14", "peak_flops.bf16: .inf"},
      {"bf16: 9.89e+14", "bf16: 1e999", "9.89e+14", "peak_flops.bf16: 1e999"},
      {"bf16: 9.89e+14", "u8: 1e14", "bf16: 9.89e+14", "peak_flops.u8: unknown key"},
      {"bf16: 9.89e+14", "f8_e5m2: 1e15", "bf16: 9.89e+14", "peak_flops.f8_e5m2: unknown key"},
      {"ab: f8_e4m3, c: bf16", "ab: f8_e4m3, c: f8_e4m3",
       "bf16, transpose_a: false, transpose_b: true, accumulate: false",
       "matmul_choices.products[2].c: f8_e4m3: not one of the choices"},
      {"flops_per_second: 6.5e+14", "flops_per_second: -6.5e+14", "6.5e+14}",
       "matmul[0].flops_per_second: -6.5e+14: too small"},
      {"latency_seconds: 1e-05", "latency_seconds: -1e-05", "1e-05, bytes", "links.host_to_device.latency_seconds"},
      {"ranks: 8", "ranks: 1", "8\n      latency", "links.collectives[1].ranks: 1: too small; write 2"},
      {"seconds: 3e-05", "seconds: 0", "3e-05}", "links.collectives[0].points[1].seconds: 0: not positive"},
      {"direct_io: true", "direct_io: 1", "true, mixed", "disks[0].direct_io: 1"},
      {"mixed_bytes_per_second: 3.5e+09", "mixed_bytes_per_second: 0", "3.5e+09", "disks[0].mixed_bytes_per_second: 0"},
      {"block_bytes: 4194304", "block_bytes: 5000", "4194304", "disks[0].block_bytes: 5000: write a multiple of 4096"},
      {"block_bytes: 4194304", "block_bytes: 0", "4194304", "disks[0].block_bytes: 0"},
      {"block_bytes: 4194304", "block_bytes: 2GiB", "4194304", "disks[0].block_bytes: 2147483648"},
      {"queue_depth: 32", "queue_depth: 0", "32}\n  - {path: /tmp", "disks[0].queue_depth: 0: too small; write 1"},
      {"queue_depth: 32", "queue_depth: 1025", "32}\n  - {path: /tmp", "disks[0].queue_depth: 1025: too large"},
      {"ffffffffffffffff", "fffffffffffffff", "ffffffffffffffff", "matmul_choices.products[0].algorithm[1]"},
      {"0000000000000042, ", "", "[0000000000000042", "7 words, and an algorithm has eight"},
      {"m: 16,", "m: 8192,", "{m: 16", "matmul_choices.products[1]: the same product stands above"},
      {"dtype: bf16, m: 512, n: 768, k: 768, transpose_a: true, transpose_b: false",
       "dtype: bf16, m: 8192, n: 4096, k: 4096, transpose_a: false, transpose_b: true", "{dtype: bf16, m: 512",
       "matmul[1]: the same product stands above"},
      {"deterministic: false", "deterministic: true",
       "{dtype: bf16, tokens: 2048, head_size: 128, pass: backward, deterministic: false",
       "attention[2]: the same attention stands above"},
      {"kind: reduce_scatter\n      ranks: 8", "kind: all_gather\n      ranks: 2", "kind: reduce_scatter",
       "links.collectives[1]: the same collective"},
      {"format: 1", "format: 2", "1\nwritten", "format: 2 is newer than this program"},
      {"format: 1\n", "", "", "format: absent"},
  };
  for (const Case& c : cases) {
    INFO(c.from << " -> " << c.to);
    const std::string refusal = Refusal(With(c.from, c.to));
    CHECK(Has(refusal, c.reason));
    if (c.place.empty())
      CHECK(refusal.starts_with("m.yaml:"));
    else
      CHECK(refusal.substr(0, PlaceOf(c.place).size()) == PlaceOf(c.place));
  }
}

TEST_CASE("a format of the future is refused by its number, whatever else it has") {
  CHECK(Has(Refusal("format: 7\nnew_key: 1\n"), "format: 7 is newer"));
  CHECK(Refusal("just text").starts_with("m.yaml:1:1: "));
  CHECK(Refusal("").starts_with("m.yaml"));
}

TEST_CASE("bytes whose sums would overflow are refused") {
  for (const char* key : {"library_bytes", "first_communicator_bytes", "communicator_bytes"}) {
    CAPTURE(key);
    std::string text = ToYaml(test::FullMachineFile());
    const size_t at = text.find("  " + std::string(key) + ": ") + std::string(key).size() + 4;
    text.replace(at, text.find('\n', at) - at, "9e18");
    CHECK(Has(Refusal(text), "libraries." + std::string(key) + ": 9e18: too large; write 1PiB or less"));
  }
}

TEST_CASE("what is no regular file is refused, and not read") {
  const std::string refusal = [] {
    try {
      ReadMachineFile("/dev/zero");
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string();
  }();
  CHECK(refusal == "/dev/zero: not a regular file; ds-bench writes machine files");
}

TEST_CASE("what is of a GPU alone is refused of a CPU, and the reverse") {
  CHECK(Has(Refusal(With("kind: cuda", "kind: cpu")), "device.compute_capability: a CPU has none"));
  CHECK(Has(Refusal(With("count: 8", "count: 8\n  threads: 2")), "device.threads: of CPUs only"));
  MachineFile cpu = test::FullMachineFile();
  cpu.device = {DeviceKind::cpu, "a CPU", 2, 0, "", "", "", 1};
  CHECK(Has(Refusal(ToYaml(cpu)), "matmul_choices: the device is a CPU"));
}

TEST_CASE("a damaged machine file is refused or read, never anything else") {
  const std::string text = ToYaml(test::FullMachineFile());
  int refused = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    std::string cut = text.substr(0, i), changed = text;
    changed[i] = static_cast<char>(changed[i] ^ (1 << (i % 7)));
    refused += !Refusal(cut).empty();
    refused += !Refusal(changed).empty();  // another error than UsageError ends the test
  }
  CHECK(refused > static_cast<int>(text.size()));
}

}  // namespace
}  // namespace ds
