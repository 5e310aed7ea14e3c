#include "test/checkpoint/damage.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "runtime/base/checksum.h"
#include "runtime/base/file.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/safetensors.h"
#include "test/unit/data/temp_folder.h"

namespace ds::checkpoint_test {
namespace {

namespace fs = std::filesystem;
using test::Overwrite;

constexpr char kStep[] = "step-20";

void WriteStep(const fs::path& root, int64_t step) {
  constexpr int kRanks = 2;
  ThreadWorld world(kRanks, std::chrono::seconds(60));
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank)
    ranks.emplace_back([&, rank] {
      const std::unique_ptr<Communicator> control = world.Make(rank, "control");
      std::vector<std::vector<float>> memory;
      std::vector<StateSlice> slices;
      const std::pair<const char*, Shape> params[] = {{"layer.weight", Shape{6, 4}}, {"layer.bias", Shape{4}}};
      for (const auto& [name, shape] : params)
        for (StateKind state : {StateKind::master, StateKind::moment1, StateKind::moment2}) {
          const int64_t count = shape.numel() / kRanks;
          memory.emplace_back(static_cast<size_t>(count), static_cast<float>(step) + static_cast<float>(rank) / 2);
          slices.push_back({name, state, shape, rank * count, Tensor::Of(memory.back().data(), {count})});
        }
      for (size_t i = 0; i < slices.size(); ++i) slices[i].data.data = memory[i].data();
      TrainingState state;
      state.step = step;
      state.job_yaml = "job: {name: small}\n";
      WriteCheckpoint(root, state, slices, 0, *control);
    });
  for (std::thread& rank : ranks) rank.join();
}

/// One byte of a file turned over.
std::function<void(const fs::path&)> Flip(const std::string& file, size_t at, char bits = 4) {
  return [=](const fs::path& root) {
    std::string bytes = ReadFile(root / file);
    bytes.at(at) = static_cast<char>(bytes.at(at) ^ bits);
    Overwrite(root / file, bytes);
  };
}

std::function<void(const fs::path&)> Put(const std::string& file, const std::string& bytes) {
  return [=](const fs::path& root) { Overwrite(root / file, bytes); };
}

/// What stands in the place of a file that was removed.
std::vector<Damage> DamagesOfPlace(const std::string& file) {
  auto in_place = [file](auto make) {
    return [=](const fs::path& root) {
      fs::remove_all(root / file);
      make(root / file);
    };
  };
  return {
      {"missing", in_place([](const fs::path&) {}), file, "is missing"},
      {"a folder", in_place([](const fs::path& path) { fs::create_directory(path); }), file, "is a folder, not a file"},
      {"a pipe", in_place([](const fs::path& path) { ::mkfifo(path.c_str(), 0600); }), file, "is not a regular file"},
      {"a link to itself", in_place([](const fs::path& path) { fs::create_symlink(path.filename(), path); }), file,
       "Too many levels of symbolic links"},
      {"a link to nothing", in_place([](const fs::path& path) { fs::create_symlink("nowhere", path); }), file,
       "is missing"},
  };
}

void Append(std::vector<Damage>& to, std::vector<Damage> more, const std::string& prefix) {
  for (Damage& damage : more) {
    damage.name = prefix + ": " + damage.name;
    to.push_back(std::move(damage));
  }
}

size_t Find(const std::string& text, const std::string& part) {
  const size_t at = text.find(part);
  if (at == std::string::npos) throw std::runtime_error("no " + part);
  return at;
}

}  // namespace

std::string Sealed(std::string text) {
  const size_t tail = text.rfind(",\"xxh64\":\"");
  return text.substr(0, tail) + ",\"xxh64\":\"" + ChecksumText(Checksum(text.substr(0, tail))) + "\"}\n";
}

void WriteRun(const fs::path& run) {
  WriteStep(run / "checkpoints", 10);
  WriteStep(run / "checkpoints", 20);
}

std::vector<Damage> DamagesOfShards(const fs::path& root) {
  std::vector<Damage> damages;
  for (const std::string& name : {std::string("rank-0.safetensors"), std::string("rank-1.safetensors")}) {
    const std::string file = std::string(kStep) + "/" + name, whole = ReadFile(root / file);
    uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, whole.data(), sizeof header_bytes);
    const size_t data = sizeof header_bytes + header_bytes;
    const SafetensorsFile opened(root / file);
    const std::string damaged = "is damaged: its checksum is";
    std::vector<Damage> of_file;
    auto flip = [&](const std::string& what, size_t at, char bits = 4) {
      of_file.push_back({what, Flip(file, at, bits), file, damaged});
    };
    for (size_t at = 0; at < 8; ++at) flip("length, byte " + std::to_string(at), at);
    flip("the header's first brace", 8);
    flip("a quote", 9);
    flip("metadata", Find(whole, "deepshard-checkpoint"));
    flip("a name", Find(whole, "layer.weight/"));
    flip("a state's name", Find(whole, "moment2"));
    flip("a slice's place", Find(whole, "@") + 1, 1);
    flip("a dtype", Find(whole, "F32"), 1);
    flip("a shape", Find(whole, "\"shape\":[") + 9, 1);
    flip("an offset's begin", Find(whole, "\"data_offsets\":[") + 16, 1);
    flip("an offset's end", whole.find(',', Find(whole, "\"data_offsets\":[")) + 1, 1);
    flip("a comma", Find(whole, "\"F32\",") + 5);
    flip("the header's last byte", data - 1);
    const char* first = nullptr;
    for (const auto& [tensor, entry] : opened.entries()) first = first ? std::min(first, entry.data) : entry.data;
    for (const auto& [tensor, entry] : opened.entries())
      flip("payload of " + tensor, data + static_cast<size_t>(entry.data - first) + 2);
    flip("the last byte", whole.size() - 1);
    for (size_t size : {size_t{0}, size_t{1}, size_t{7}, size_t{8}, data - 1, data, data + 5, whole.size() - 1})
      of_file.push_back({"cut to " + std::to_string(size), Put(file, whole.substr(0, size)), file,
                         "has " + std::to_string(size) + " bytes, the manifest states " + std::to_string(whole.size()) +
                             ": it is cut short"});
    of_file.push_back({"a byte more", Put(file, whole + "x"), file, "it is not this checkpoint's"});
    of_file.push_back({"zeros of the same size", Put(file, std::string(whole.size(), '\0')), file, damaged});
    of_file.push_back(
        {"another checkpoint's file of the same size",
         [=](const fs::path& at) { Overwrite(at / file, ReadFile(at / "step-10" / fs::path(file).filename())); }, file,
         damaged});
    Append(of_file, DamagesOfPlace(file), "instead");
    Append(damages, std::move(of_file), name);
  }
  damages.push_back({"the ranks' files exchanged",
                     [](const fs::path& at) {
                       fs::rename(at / kStep / "rank-0.safetensors", at / kStep / "x");
                       fs::rename(at / kStep / "rank-1.safetensors", at / kStep / "rank-0.safetensors");
                       fs::rename(at / kStep / "x", at / kStep / "rank-1.safetensors");
                     },
                     std::string(kStep) + "/rank-", ""});
  for (const char* extra : {"rank-2.safetensors", "notes.txt", "model.safetensors.tmp"})
    damages.push_back({std::string("a foreign file ") + extra, Put(std::string(kStep) + "/" + extra, "x"),
                       std::string(kStep) + "/" + extra, "is not part of this checkpoint"});
  return damages;
}

std::vector<Damage> DamagesOfManifests(const fs::path& root) {
  const std::string file = std::string(kStep) + "/manifest.json", whole = ReadFile(root / file);
  std::vector<Damage> damages;
  // Every key, and the value that follows it: flipped, the checksum tells.
  for (const char* key : {"format", "version",    "written_ns",      "ranks",      "training",   "step",
                          "tokens", "samples",    "optimizer_steps", "loss_scale", "good_steps", "hysteresis_left",
                          "seed",   "data_width", "final_loss",      "job",        "files",      "name",
                          "bytes",  "parameters", "shape",           "slices",     "state",      "begin",
                          "count",  "file",       "tensor"}) {
    const size_t at = Find(whole, "\"" + std::string(key) + "\":");
    damages.push_back({std::string("key ") + key, Flip(file, at + 1), file, "the manifest is damaged"});
    damages.push_back(
        {std::string("value of ") + key, Flip(file, at + std::strlen(key) + 3, 1), file, "the manifest is damaged"});
  }
  damages.push_back(
      {"a file's checksum", Flip(file, Find(whole, "\"xxh64\":\"") + 9, 1), file, "the manifest is damaged"});
  damages.push_back({"its own checksum", Flip(file, whole.size() - 10, 1), file, "the manifest is damaged"});
  damages.push_back({"no digit in its checksum", Flip(file, whole.size() - 4, 64), file, "the manifest is damaged"});
  damages.push_back({"the last byte", Flip(file, whole.size() - 1), file, "does not end with its checksum"});
  for (size_t size : {size_t{0}, size_t{1}, whole.size() / 4, whole.size() / 2, whole.size() - 28, whole.size() - 2,
                      whole.size() - 1})
    damages.push_back({"cut to " + std::to_string(size), Put(file, whole.substr(0, size)), file, "cut short"});
  damages.push_back({"text after it", Put(file, whole + "\n"), file, "does not end with its checksum"});
  damages.push_back({"other text", Put(file, "hello\n"), file, "is not one"});
  damages.push_back(
      {"another program's JSON", Put(file, "{\"weight_map\":{\"w\":\"model.safetensors\"}}\n"), file, "is not one"});
  damages.push_back({"zeros", Put(file, std::string(whole.size(), '\0')), file, "is not one"});
  damages.push_back({"the older checkpoint's",
                     [=](const fs::path& at) { Overwrite(at / file, ReadFile(at / "step-10/manifest.json")); }, file,
                     "is of step 10, its folder says step 20"});

  // Wrong, with a checksum that agrees: what each field must be.
  auto forged = [&](const std::string& what, const std::string& from, const std::string& to, const std::string& reason,
                    const std::string& named = std::string(kStep) + "/manifest.json") {
    std::string text = whole;
    text.replace(Find(text, from), from.size(), to);
    damages.push_back({"forged " + what, Put(file, Sealed(text)), named, reason});
  };
  forged("format", "\"deepshard-checkpoint\"", "\"another-checkpoint\"", "its format is");
  forged("version", "\"version\":1", "\"version\":7", "its version is 7");
  forged("version's type", "\"version\":1", "\"version\":\"x\"", "manifest.json");
  forged("step", "\"step\":20", "\"step\":21", "is of step 21, its folder says step 20");
  forged("negative tokens", "\"tokens\":0", "\"tokens\":-1", "negative");
  forged("fraction", "\"samples\":0", "\"samples\":0.5", "manifest.json");
  forged("missing key", "\"good_steps\"", "\"good_stops\"", "lacks `good_steps`");
  forged("file name", "\"name\":\"rank-1.safetensors\"", "\"name\":\"rank-7.safetensors\"", "not listed");
  forged("path", "\"name\":\"rank-1.safetensors\"", "\"name\":\"../../../secret\"", "not a name of a file");
  forged("size", "\"bytes\":", "\"bytes\":1", "bytes, the manifest states", std::string(kStep) + "/rank-0.safetensors");
  forged("shape", "\"shape\":[6,4]", "\"shape\":[6,5]", "are missing");
  forged("shape of no elements", "\"shape\":[6,4]", "\"shape\":[6,0]", "impossible shape");
  forged("huge shape", "\"shape\":[6,4]", "\"shape\":[4611686018427387904,4]", "impossible shape");
  forged("state", "\"state\":\"moment1\"", "\"state\":\"moment3\"", "has a state `moment3`");
  forged("begin", "\"begin\":12", "\"begin\":11", "held twice");
  forged("count", "\"count\":12", "\"count\":11", "are missing");
  forged("slice's file", "\"file\":\"rank-0.safetensors\"", "\"file\":\"rank-5.safetensors\"", "not listed");
  Append(damages, DamagesOfPlace(file), "instead");
  for (Damage& damage : damages) damage.name = "manifest: " + damage.name;
  return damages;
}

std::vector<Damage> DamagesOfFolders() {
  auto emptied = [](const fs::path& root) {
    fs::remove_all(root / kStep);
    fs::create_directory(root / kStep);
  };
  return {
      {"folder: empty", emptied, "step-20/manifest.json", "is missing"},
      {"folder: only shards", [](const fs::path& root) { fs::remove(root / "step-20/manifest.json"); },
       "step-20/manifest.json", "is missing"},
      {"folder: a copy of the older one",
       [](const fs::path& root) {
         fs::remove_all(root / kStep);
         fs::copy(root / "step-10", root / kStep, fs::copy_options::recursive);
       },
       "step-20/manifest.json", "is of step 10, its folder says step 20"},
  };
}

std::vector<Damage> DamagesOfLatest() {
  auto instead = [](auto make) {
    return [=](const fs::path& root) {
      fs::remove_all(root / kStep);
      make(root);
    };
  };
  auto relink = [](const char* target) {
    return [=](const fs::path& root) {
      fs::remove_all(root / "latest");
      fs::create_symlink(target, root / "latest");
    };
  };
  return {
      {"removed whole", instead([](const fs::path&) {}), "latest", "points to step-20, which is no folder there"},
      {"a file instead of the folder", instead([](const fs::path& root) { Overwrite(root / kStep, "x"); }), "latest",
       "points to step-20, which is no folder there"},
      {"a link to itself instead of the folder",
       instead([](const fs::path& root) { fs::create_symlink(kStep, root / kStep); }), "latest",
       "points to step-20, which is no folder there"},
      {"unfinished again", [](const fs::path& root) { fs::rename(root / kStep, root / "step-20.partial"); }, "latest",
       "points to step-20, which is no folder there"},
      {"latest is a link to itself", instead(relink("latest")), "latest", "points to latest, which is no checkpoint"},
      {"latest leads elsewhere", instead(relink("../../other/step-20")), "latest",
       "which is no checkpoint of its folder"},
      {"latest is a file", instead([](const fs::path& root) {
         fs::remove(root / "latest");
         Overwrite(root / "latest", "step-20");
       }),
       "latest", "is not a symbolic link"},
      {"latest is a folder", instead([](const fs::path& root) {
         fs::remove(root / "latest");
         fs::create_directory(root / "latest");
       }),
       "latest", "is not a symbolic link"},
  };
}

}  // namespace ds::checkpoint_test
