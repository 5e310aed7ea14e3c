// Reads machine files.
#include "runtime/plan/machine_file.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "runtime/base/checksum.h"
#include "runtime/base/file.h"
#include "runtime/job/read_value.h"
#include "runtime/job/yaml.h"
#include "runtime/plan/machine_names.h"

namespace ds {
namespace {

constexpr int64_t kMany = int64_t{1} << 53;
constexpr int64_t kMostBytes = int64_t{1} << 50;  // sums of a few stay far below what 64 bits hold
constexpr double kLeastSeconds = 1e-12, kMostSeconds = 3600;
constexpr int64_t kDiskSector = 4096, kMostBlock = int64_t{1} << 30, kDeepestQueue = 1024;
constexpr size_t kMostText = 4 << 20;  // it travels to every worker in one message

/// The fields of one map. Every message names the place and the key's whole path.
class Fields {
 public:
  /// Throws when `value` is no map, or has a key that is not `known`.
  Fields(const Value& value, std::string path, const std::vector<std::string>& known)
      : value_(value), path_(std::move(path)) {
    if (value.kind != Value::Kind::map)
      Fail(value.where, path_, Describe(value) + ": write keys and values here, as in docs/machine-file.md");
    for (const auto& [name, field] : value.fields)
      if (std::find(known.begin(), known.end(), name) == known.end())
        Fail(field.key_where, At(name), "unknown key; the nearest is " + At(Nearest(name, known)));
  }

  [[noreturn]] static void Fail(const Position& where, const std::string& key, const std::string& reason) {
    throw UsageError(where.str() + ": " + (key.empty() ? "" : key + ": ") + reason);
  }
  /// About the whole map.
  [[noreturn]] void Fail(const std::string& reason) const { Fail(value_.where, path_, reason); }
  [[noreturn]] void Fail(const std::string& key, const std::string& reason) const {
    Fail(value_.Find(key)->where, At(key), reason);
  }

  bool Has(const std::string& key) const {
    const Value* field = value_.Find(key);
    return field && !field->is_null();
  }
  std::string At(const std::string& key) const { return path_.empty() ? key : path_ + "." + key; }
  const Value& Get(const std::string& key) const {
    if (!Has(key)) Fail(value_.where, At(key), "absent; the file must have it");
    return *value_.Find(key);
  }

  /// `read`(value); a ValueError becomes a message with the key.
  template <typename Read>
  auto As(const std::string& key, Read read) const {
    const Value& value = Get(key);
    try {
      return read(value);
    } catch (const ValueError& e) {
      Fail(e.where(), At(key), e.shown() + ": " + e.reason());
    }
  }
  std::string Text(const std::string& key) const {
    return As(key, [](const Value& v) { return AsString(v); });
  }
  int64_t Count(const std::string& key, int64_t low = 1) const {
    return As(key, [low](const Value& v) { return ReadInteger(v, low, kMany); });
  }
  /// Of bytes or FLOPs a second: nothing does less than one, and sums of what passes here stay finite.
  double Rate(const std::string& key) const {
    return As(key, [](const Value& v) { return ReadNumber(v, 1, 1e24); });
  }
  double Seconds(const std::string& key) const {
    return As(key, [](const Value& v) {
      if (const double seconds = ReadPositive(v); seconds < kLeastSeconds)
        throw ValueError(v, "too small; write " + JsonNumber(kLeastSeconds) + " or more");
      return ReadNumber(v, 0, kMostSeconds);
    });
  }
  int64_t Bytes(const std::string& key) const {
    return As(key, [](const Value& v) {
      const int64_t bytes = AsBytes(v);
      if (bytes > kMostBytes) throw ValueError(v, "too large; write 1PiB or less");
      return bytes;
    });
  }
  bool Flag(const std::string& key) const { return As(key, AsBool); }
  template <typename E>
  E Name(const std::string& key, const Names<E>& names) const {
    return As(key, [&](const Value& v) { return ReadName(v, names); });
  }
  /// Calls `each`(item, its path) for the items of a list.
  template <typename Each>
  void List(const std::string& key, Each each) const {
    if (!Has(key)) return;
    const Value& list = Get(key);
    if (list.kind != Value::Kind::list) Fail(key, Describe(list) + ": a list is wanted; write lines that begin with -");
    for (size_t i = 0; i < list.items.size(); ++i) each(list.items[i], At(key) + "[" + std::to_string(i) + "]");
  }

 private:
  const Value& value_;
  const std::string path_;
};

MachineDevice ReadDevice(const Value& value) {
  const Fields f(value, "device",
                 {"kind", "name", "count", "memory_bytes", "compute_capability", "driver", "cuda", "threads"});
  MachineDevice device;
  device.kind = f.Name("kind", kDeviceKindNames);
  device.name = f.Text("name");
  if (device.name.empty()) f.Fail("name", "empty; write the device's name");
  device.count = f.Count("count");
  if (f.Has("memory_bytes")) device.memory_bytes = f.Bytes("memory_bytes");
  const bool cpu = device.kind == DeviceKind::cpu;
  for (const char* key : {"compute_capability", "driver", "cuda"})
    if (cpu && f.Has(key)) f.Fail(key, "a CPU has none; remove it");
  if (f.Has("compute_capability")) device.compute_capability = f.Text("compute_capability");
  if (f.Has("driver")) device.driver = f.Text("driver");
  if (f.Has("cuda")) device.cuda = f.Text("cuda");
  if (!cpu && f.Has("threads")) f.Fail("threads", "of CPUs only; remove it");
  if (f.Has("threads")) device.threads = f.Count("threads");
  return device;
}

LibraryMemory ReadLibraries(const Value& value) {
  const Fields f(value, "libraries", {"library_bytes", "first_communicator_bytes", "communicator_bytes"});
  LibraryMemory memory;
  if (f.Has("library_bytes")) memory.library_bytes = f.Bytes("library_bytes");
  if (f.Has("first_communicator_bytes")) memory.first_communicator_bytes = f.Bytes("first_communicator_bytes");
  if (f.Has("communicator_bytes")) memory.communicator_bytes = f.Bytes("communicator_bytes");
  return memory;
}

void ReadPeaks(const Value& value, std::map<DType, double>& peaks) {
  std::vector<std::string> names;
  for (const auto& entry : kPeakNames) names.push_back(entry.first);
  const Fields f(value, "peak_flops", names);
  for (const auto& [name, dtype] : kPeakNames)
    if (f.Has(name)) peaks[dtype] = f.Rate(name);
}

MatMulRate ReadMatMulRate(const Value& value, const std::string& path) {
  const Fields f(value, path, {"dtype", "m", "n", "k", "transpose_a", "transpose_b", "flops_per_second"});
  return {f.Name("dtype", kProductNames),
          f.Count("m"),
          f.Count("n"),
          f.Count("k"),
          f.Flag("transpose_a"),
          f.Flag("transpose_b"),
          f.Rate("flops_per_second")};
}

AttentionRate ReadAttentionRate(const Value& value, const std::string& path) {
  const Fields f(value, path, {"dtype", "tokens", "head_size", "pass", "deterministic", "flops_per_second"});
  static const Names<bool> passes = {{"forward", false}, {"backward", true}};
  return {f.Name("dtype", kFloatNames), f.Count("tokens"),       f.Count("head_size"),
          f.Name("pass", passes),       f.Flag("deterministic"), f.Rate("flops_per_second")};
}

LinkRate ReadRate(const Fields& f) {
  LinkRate rate;
  rate.latency_seconds = f.As("latency_seconds", [](const Value& v) { return ReadNumber(v, 0, kMostSeconds); });
  rate.bytes_per_second = f.Rate("bytes_per_second");
  return rate;
}

CollectiveRate ReadCollective(const Value& value, const std::string& path) {
  const Fields f(value, path, {"kind", "ranks", "latency_seconds", "bytes_per_second", "points"});
  CollectiveRate out;
  out.kind = f.Name("kind", kCollectiveNames);
  out.ranks = f.Count("ranks", 2);
  out.rate = ReadRate(f);
  f.List("points", [&](const Value& point, const std::string& at) {
    const Fields p(point, at, {"bytes", "seconds"});
    out.points.emplace_back(p.Count("bytes"), p.Seconds("seconds"));
  });
  return out;
}

void ReadLinks(const Value& value, MachineFile& file) {
  const Fields f(value, "links", {"host_to_device", "device_to_host", "collectives"});
  auto link = [&](const char* key) {
    return f.Has(key) ? ReadRate(Fields(f.Get(key), f.At(key), {"latency_seconds", "bytes_per_second"})) : LinkRate{};
  };
  file.host_to_device = link("host_to_device");
  file.device_to_host = link("device_to_host");
  std::set<std::pair<CollectiveKind, int64_t>> seen;
  f.List("collectives", [&](const Value& item, const std::string& path) {
    file.collectives.push_back(ReadCollective(item, path));
    const CollectiveRate& c = file.collectives.back();
    if (!seen.emplace(c.kind, c.ranks).second)
      Fields::Fail(item.where, path, "the same collective of as many ranks stands above; remove one");
  });
}

DiskRate ReadDisk(const Value& value, const std::string& path) {
  const Fields f(value, path,
                 {"path", "write_bytes_per_second", "read_bytes_per_second", "direct_io", "mixed_bytes_per_second",
                  "block_bytes", "queue_depth"});
  DiskRate disk;
  disk.path = f.Text("path");
  disk.write_bytes_per_second = f.Rate("write_bytes_per_second");
  disk.read_bytes_per_second = f.Rate("read_bytes_per_second");
  disk.direct_io = f.Flag("direct_io");
  if (f.Has("mixed_bytes_per_second")) disk.mixed_bytes_per_second = f.Rate("mixed_bytes_per_second");
  // What a file tier takes (CheckFileBlocks).
  if (f.Has("block_bytes")) {
    disk.block_bytes = f.Bytes("block_bytes");
    if (disk.block_bytes <= 0 || disk.block_bytes % kDiskSector != 0 || disk.block_bytes > kMostBlock)
      f.Fail("block_bytes", std::to_string(disk.block_bytes) + ": write a multiple of 4096, 1GiB or less");
  }
  if (f.Has("queue_depth"))
    disk.queue_depth = f.As("queue_depth", [](const Value& v) { return ReadInteger(v, 1, kDeepestQueue); });
  return disk;
}

MatMulChoice ReadChoice(const Value& value, const std::string& path) {
  const Fields f(
      value, path,
      {"m", "n", "k", "ab", "c", "transpose_a", "transpose_b", "accumulate", "epilogue", "algorithm", "seconds"});
  MatMulChoice choice;
  choice.key = {f.Count("m"),
                f.Count("n"),
                f.Count("k"),
                f.Name("ab", kProductNames),
                f.Name("c", kFloatNames),
                f.Flag("transpose_a"),
                f.Flag("transpose_b"),
                f.Flag("accumulate"),
                f.Name("epilogue", kEpilogueNames)};
  std::vector<uint64_t> words;
  f.List("algorithm", [&](const Value& word, const std::string& at) {
    const std::optional<uint64_t> bits =
        word.kind == Value::Kind::scalar ? ParseChecksum(word.text) : std::optional<uint64_t>();
    if (!bits) Fields::Fail(word.where, at, Describe(word) + ": sixteen lower-case hexadecimal digits are wanted");
    words.push_back(*bits);
  });
  f.Get("algorithm");
  if (words.size() != choice.algorithm.words.size())
    f.Fail("algorithm", std::to_string(words.size()) + " words, and an algorithm has eight; measure the machine again");
  std::copy(words.begin(), words.end(), choice.algorithm.words.begin());
  choice.seconds = f.Seconds("seconds");
  return choice;
}

void ReadChoices(const Value& value, MachineFile& file) {
  const Fields f(value, "matmul_choices", {"library_version", "products"});
  if (file.device.kind == DeviceKind::cpu) f.Fail("the device is a CPU, whose products have no choices; remove it");
  file.matmul_library_version = f.Count("library_version");
  f.Get("products");
  std::set<MatMulKey> seen;
  f.List("products", [&](const Value& item, const std::string& path) {
    file.matmul_choices.push_back(ReadChoice(item, path));
    if (!seen.insert(file.matmul_choices.back().key).second)
      Fields::Fail(item.where, path, "the same product stands above; remove one");
  });
  if (file.matmul_choices.empty()) file.matmul_library_version = 0;
}

void ReadRates(const Fields& f, MachineFile& file) {
  std::set<std::tuple<DType, int64_t, int64_t, int64_t, bool, bool>> products;
  f.List("matmul", [&](const Value& item, const std::string& path) {
    file.matmul.push_back(ReadMatMulRate(item, path));
    const MatMulRate& r = file.matmul.back();
    if (!products.emplace(r.dtype, r.m, r.n, r.k, r.transpose_a, r.transpose_b).second)
      Fields::Fail(item.where, path, "the same product stands above; remove one");
  });
  std::set<std::tuple<DType, int64_t, int64_t, bool, bool>> shapes;
  f.List("attention", [&](const Value& item, const std::string& path) {
    file.attention.push_back(ReadAttentionRate(item, path));
    const AttentionRate& r = file.attention.back();
    if (!shapes.emplace(r.dtype, r.tokens, r.head_size, r.backward, r.deterministic).second)
      Fields::Fail(item.where, path, "the same attention stands above; remove one");
  });
  std::set<std::string> paths;
  f.List("disks", [&](const Value& item, const std::string& path) {
    file.disks.push_back(ReadDisk(item, path));
    if (!paths.insert(file.disks.back().path).second)
      Fields::Fail(item.where, path, "the same path stands above; remove one");
  });
}

}  // namespace

MachineFile ParseMachineFile(const std::string& text, const std::string& name) {
  const Value root = ParseYaml(text, name);
  if (root.is_null()) Fields::Fail({name, 1, 1}, "", "the file is empty; ds-bench writes machine files");
  // Before all other keys, which another format may have others of.
  const Value* format = root.kind == Value::Kind::map ? root.Find("format") : nullptr;
  if (format && format->kind == Value::Kind::scalar && IsNumber(format->text) && AsDouble(*format) > kMachineFileFormat)
    Fields::Fail(format->where, "format",
                 format->text + " is newer than this program, which reads " + std::to_string(kMachineFileFormat) +
                     "; take the version that wrote it, or measure the machine again with ds-bench");
  const Fields f(
      root, "",
      {"format", "written", "host", "program", "device", "libraries", "peak_flops", "memory_bytes_per_second",
       "host_optimizer", "matmul", "attention", "links", "disks", "matmul_choices"});
  f.As("format", [](const Value& v) { return ReadInteger(v, 1, kMachineFileFormat); });
  MachineFile file;
  file.written = f.Text("written");
  file.host = f.Text("host");
  file.program = f.Text("program");
  file.device = ReadDevice(f.Get("device"));
  if (f.Has("libraries")) file.libraries = ReadLibraries(f.Get("libraries"));
  if (f.Has("peak_flops")) ReadPeaks(f.Get("peak_flops"), file.peak_flops);
  if (f.Has("memory_bytes_per_second")) file.memory_bytes_per_second = f.Rate("memory_bytes_per_second");
  if (f.Has("host_optimizer")) {
    const Fields host(f.Get("host_optimizer"), "host_optimizer", {"threads", "bytes_per_second"});
    file.host_optimizer = {host.Count("threads"), host.Rate("bytes_per_second")};
  }
  ReadRates(f, file);
  if (f.Has("links")) ReadLinks(f.Get("links"), file);
  if (f.Has("matmul_choices")) ReadChoices(f.Get("matmul_choices"), file);
  return file;
}

MachineFile ReadMachineFile(const std::filesystem::path& path) {
  const auto too_large = [&](uintmax_t bytes) {
    return UsageError(path.string() + ": " + std::to_string(bytes) + " bytes are no machine file; at most " +
                      std::to_string(kMostText) + " are read");
  };
  std::error_code absent;
  const std::filesystem::file_status status = std::filesystem::status(path, absent);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status) &&
      !std::filesystem::is_directory(status))  // of a folder ReadFile tells
    throw UsageError(path.string() + ": not a regular file; ds-bench writes machine files");
  if (std::filesystem::is_regular_file(status) && std::filesystem::file_size(path, absent) > kMostText && !absent)
    throw too_large(std::filesystem::file_size(path, absent));
  std::string text;
  try {
    text = ReadFile(path);
  } catch (const SystemError& e) {
    throw UsageError(std::string(e.what()) + "; ds-bench writes machine files");
  }
  if (text.size() > kMostText) throw too_large(text.size());
  return ParseMachineFile(text, path.string());
}

}  // namespace ds
