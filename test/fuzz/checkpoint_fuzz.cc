// Checkpoint folders: MANIFEST %% SHARD, the bytes of manifest.json without its checksum and those of
// rank-0.safetensors. In the manifest @BYTES@ and @XXH64@ stand for the shard's size and checksum, so that what is
// behind them is reached. Everything that the manifest lists can be read, and nothing else happens.
#include "runtime/checkpoint/checkpoint.h"

#include "runtime/base/checksum.h"
#include "runtime/base/error.h"
#include "test/fuzz/fuzz.h"

using namespace ds;

namespace {

std::string Replaced(std::string text, std::string_view what, const std::string& by) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size())
    text.replace(at, what.size(), by);
  return text;
}

void ReadAll(const std::filesystem::path& folder) {
  const CheckpointReader reader(folder);
  for (const auto& [name, shape] : reader.parameters()) {
    for (const StateKind state : {StateKind::master, StateKind::moment1, StateKind::moment2}) {
      if (!reader.Has(name, state)) continue;
      float first = -1;
      reader.Read(name, state, shape.numel() - 1, Tensor::Of(&first, {1}));
      if (shape.numel() > 4096) continue;
      std::vector<float> all(static_cast<size_t>(shape.numel()), -1.0f);
      reader.Read(name, state, 0, Tensor::Of(all.data(), {shape.numel()}));
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::vector<std::string> parts = fuzz::Parts(fuzz::View(data, size));
  const std::string shard = parts.size() > 1 ? parts[1] : std::string();
  std::string manifest = Replaced(parts[0], "@BYTES@", std::to_string(shard.size()));
  manifest = Replaced(manifest, "@XXH64@", ChecksumText(Checksum(shard)));
  manifest = manifest.substr(0, manifest.find_last_of('}'));
  manifest += ",\"xxh64\":\"" + ChecksumText(Checksum(manifest)) + "\"}\n";

  const fuzz::Folder folder;
  folder.Write("manifest.json", manifest);
  if (parts.size() > 1) folder.Write("rank-0.safetensors", shard);
  const fuzz::Memory limit{4000, 1 << 20};
  const bool sound = fuzz::Guarded(manifest.size() + shard.size(), limit, {}, [&] { VerifyCheckpoint(folder.path()); });
  const bool read = fuzz::Guarded(manifest.size() + shard.size(), limit, {}, [&] { ReadAll(folder.path()); });
  fuzz::Check(sound || !read, "a checkpoint that does not verify was read");
  return 0;
}
