// Writes machine files.
#include "runtime/base/checksum.h"
#include "runtime/job/yaml.h"
#include "runtime/plan/machine_file.h"
#include "runtime/plan/machine_names.h"

namespace ds {
namespace {

std::string Flag(bool value) { return value ? "true" : "false"; }

std::string Line(const char* key, const std::string& value) { return std::string(key) + ": " + value + "\n"; }

std::string DeviceText(const MachineDevice& device) {
  std::string text = "device:\n  " + Line("kind", NameOf(device.kind, kDeviceKindNames)) + "  " +
                     Line("name", YamlScalar(device.name)) + "  " + Line("count", std::to_string(device.count));
  if (device.memory_bytes > 0) text += "  " + Line("memory_bytes", std::to_string(device.memory_bytes));
  auto version = [&](const char* key, const std::string& value) {
    if (!value.empty()) text += "  " + Line(key, YamlScalar(value));
  };
  version("compute_capability", device.compute_capability);
  version("driver", device.driver);
  version("cuda", device.cuda);
  if (device.threads > 0) text += "  " + Line("threads", std::to_string(device.threads));
  return text;
}

std::string LibrariesText(const LibraryMemory& memory) {
  std::string text;
  auto row = [&](const char* key, const std::optional<int64_t>& bytes) {
    if (bytes) text += "  " + Line(key, std::to_string(*bytes));
  };
  row("library_bytes", memory.library_bytes);
  row("first_communicator_bytes", memory.first_communicator_bytes);
  row("communicator_bytes", memory.communicator_bytes);
  return text.empty() ? "" : "libraries:\n" + text;
}

std::string RateText(const LinkRate& rate) {
  return "latency_seconds: " + JsonNumber(rate.latency_seconds) +
         ", bytes_per_second: " + JsonNumber(rate.bytes_per_second);
}

std::string LinksText(const MachineFile& file) {
  std::string text;
  if (file.host_to_device.bytes_per_second > 0) text += "  host_to_device: {" + RateText(file.host_to_device) + "}\n";
  if (file.device_to_host.bytes_per_second > 0) text += "  device_to_host: {" + RateText(file.device_to_host) + "}\n";
  if (!file.collectives.empty()) text += "  collectives:\n";
  for (const CollectiveRate& c : file.collectives) {
    text += "    - kind: " + std::string(NameOf(c.kind)) + "\n      ranks: " + std::to_string(c.ranks) +
            "\n      latency_seconds: " + JsonNumber(c.rate.latency_seconds) +
            "\n      bytes_per_second: " + JsonNumber(c.rate.bytes_per_second) + "\n";
    if (!c.points.empty()) text += "      points:\n";
    for (const auto& [bytes, seconds] : c.points)
      text += "        - {bytes: " + std::to_string(bytes) + ", seconds: " + JsonNumber(seconds) + "}\n";
  }
  return text.empty() ? "" : "links:\n" + text;
}

std::string ShapeText(int64_t m, int64_t n, int64_t k) {
  return "m: " + std::to_string(m) + ", n: " + std::to_string(n) + ", k: " + std::to_string(k);
}

std::string RatesText(const MachineFile& file) {
  std::string text;
  if (!file.matmul.empty()) text += "matmul:\n";
  for (const MatMulRate& r : file.matmul)
    text += "  - {dtype: " + NameOf(r.dtype, kProductNames) + ", " + ShapeText(r.m, r.n, r.k) +
            ", transpose_a: " + Flag(r.transpose_a) + ", transpose_b: " + Flag(r.transpose_b) +
            ", flops_per_second: " + JsonNumber(r.flops_per_second) + "}\n";
  if (!file.attention.empty()) text += "attention:\n";
  for (const AttentionRate& r : file.attention)
    text += "  - {dtype: " + NameOf(r.dtype, kFloatNames) + ", tokens: " + std::to_string(r.tokens) +
            ", head_size: " + std::to_string(r.head_size) + ", pass: " + (r.backward ? "backward" : "forward") +
            ", deterministic: " + Flag(r.deterministic) + ", flops_per_second: " + JsonNumber(r.flops_per_second) +
            "}\n";
  return text;
}

std::string ChoicesText(const MachineFile& file) {
  if (file.matmul_choices.empty()) return "";
  std::string text =
      "matmul_choices:\n  " + Line("library_version", std::to_string(file.matmul_library_version)) + "  products:\n";
  for (const MatMulChoice& choice : file.matmul_choices) {
    const MatMulKey& key = choice.key;
    text += "    - {" + ShapeText(key.m, key.n, key.k) + ", ab: " + NameOf(key.ab, kProductNames) +
            ", c: " + NameOf(key.c, kFloatNames) + ", transpose_a: " + Flag(key.transpose_a) +
            ", transpose_b: " + Flag(key.transpose_b) + ", accumulate: " + Flag(key.accumulate) +
            ", epilogue: " + NameOf(key.epilogue, kEpilogueNames) + ",\n       seconds: " + JsonNumber(choice.seconds) +
            ",\n       algorithm: [";
    for (size_t i = 0; i < choice.algorithm.words.size(); ++i)
      text += (i == 0 ? "" : ", ") + ChecksumText(choice.algorithm.words[i]);
    text += "]}\n";
  }
  return text;
}

}  // namespace

const char* NameOf(CollectiveKind kind) {
  for (const auto& [name, meaning] : kCollectiveNames)
    if (meaning == kind) return name.c_str();
  return "?";
}

std::string ToYaml(const MachineFile& file) {
  std::string text = "# What was measured of a machine; docs/machine-file.md describes it.\n" +
                     Line("format", std::to_string(kMachineFileFormat)) + Line("written", YamlScalar(file.written)) +
                     Line("host", YamlScalar(file.host)) + Line("program", YamlScalar(file.program)) +
                     DeviceText(file.device) + LibrariesText(file.libraries);
  if (!file.peak_flops.empty()) text += "peak_flops:\n";
  for (const auto& [dtype, flops] : file.peak_flops)
    text += "  " + NameOf(dtype, kPeakNames) + ": " + JsonNumber(flops) + "\n";
  if (file.memory_bytes_per_second > 0)
    text += Line("memory_bytes_per_second", JsonNumber(file.memory_bytes_per_second));
  if (file.host_optimizer.bytes_per_second > 0)
    text += "host_optimizer: {threads: " + std::to_string(file.host_optimizer.threads) +
            ", bytes_per_second: " + JsonNumber(file.host_optimizer.bytes_per_second) + "}\n";
  text += RatesText(file) + LinksText(file);
  if (!file.disks.empty()) text += "disks:\n";
  for (const DiskRate& disk : file.disks) {
    text +=
        "  - {path: " + YamlScalar(disk.path) + ", write_bytes_per_second: " + JsonNumber(disk.write_bytes_per_second) +
        ", read_bytes_per_second: " + JsonNumber(disk.read_bytes_per_second) + ", direct_io: " + Flag(disk.direct_io);
    if (disk.mixed_bytes_per_second > 0) text += ", mixed_bytes_per_second: " + JsonNumber(disk.mixed_bytes_per_second);
    if (disk.block_bytes > 0) text += ", block_bytes: " + std::to_string(disk.block_bytes);
    if (disk.queue_depth > 0) text += ", queue_depth: " + std::to_string(disk.queue_depth);
    text += "}\n";
  }
  return text + ChoicesText(file);
}

}  // namespace ds
