#include <algorithm>
#include <cstring>
#include <mutex>
#include <set>
#include <utility>

#include "runtime/base/checksum.h"
#include "runtime/base/error.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/safetensors.h"

namespace ds {

namespace fs = std::filesystem;

namespace {

/// The tensor of a slice, which is in `file`.
const SafetensorsFile::Entry& TensorOf(const SafetensorsFile& file, const ManifestSlice& slice) {
  const SafetensorsFile::Entry& entry = file.At(slice.tensor);
  if (entry.dtype != "F32" || entry.numel() != slice.count)
    throw RuntimeError(file.path().string() + ": tensor " + slice.tensor + " is not the " +
                       std::to_string(slice.count) + " F32 elements that the manifest states");
  return entry;
}

}  // namespace

void CheckTensors(const fs::path& folder, const Manifest& manifest) {
  for (const ManifestFile& listed : manifest.files) {
    const SafetensorsFile file(folder / listed.name);
    std::set<std::string> placed;
    for (const ManifestSlice& slice : manifest.slices) {
      if (slice.file != listed.name) continue;
      TensorOf(file, slice);
      placed.insert(slice.tensor);
    }
    for (const auto& [name, entry] : file.entries())
      if (!placed.count(name))
        throw RuntimeError(file.path().string() + ": the manifest does not list its tensor " + name);
  }
}

struct CheckpointReader::Impl {
  fs::path folder;
  Manifest manifest;
  std::map<std::pair<std::string, StateKind>, std::vector<ManifestSlice>> slices;  // by begin
  std::mutex mutex;
  std::map<std::string, std::unique_ptr<SafetensorsFile>> files;  // opened and verified

  const SafetensorsFile& Open(const std::string& name) {
    std::lock_guard lock(mutex);
    std::unique_ptr<SafetensorsFile>& file = files[name];
    if (file) return *file;
    const fs::path path = folder / name;
    auto listed = std::find_if(manifest.files.begin(), manifest.files.end(), [&](auto& f) { return f.name == name; });
    const uint64_t checksum = ChecksumFile(path);
    if (checksum != listed->xxh64)
      throw RuntimeError(path.string() + " is damaged: its checksum is " + ChecksumText(checksum) +
                         ", the manifest states " + ChecksumText(listed->xxh64));
    file = std::make_unique<SafetensorsFile>(path);
    return *file;
  }

  const float* Data(const ManifestSlice& slice) {
    return reinterpret_cast<const float*>(TensorOf(Open(slice.file), slice).data);
  }
};

CheckpointReader::CheckpointReader(const fs::path& folder) : impl_(std::make_unique<Impl>()) {
  impl_->folder = folder;
  impl_->manifest = ReadManifest(folder);
  for (const ManifestSlice& slice : impl_->manifest.slices) impl_->slices[{slice.param, slice.state}].push_back(slice);
  for (auto& [key, slices] : impl_->slices)
    std::sort(slices.begin(), slices.end(), [](auto& a, auto& b) { return a.begin < b.begin; });
}

CheckpointReader::~CheckpointReader() = default;

const TrainingState& CheckpointReader::state() const { return impl_->manifest.training; }

const std::map<std::string, Shape>& CheckpointReader::parameters() const { return impl_->manifest.parameters; }

bool CheckpointReader::Has(const std::string& param, StateKind state) const {
  return impl_->slices.count({param, state}) > 0;
}

void CheckpointReader::Read(const std::string& param, StateKind state, int64_t begin, Tensor out) const {
  float* destination = out.as<float>();
  const int64_t end = begin + out.numel();
  auto found = impl_->slices.find({param, state});
  if (found == impl_->slices.end())
    throw RuntimeError(impl_->folder.string() + " holds no " + CheckpointStateName(state) + " of " + param);
  const int64_t numel = impl_->manifest.parameters.at(param).numel();
  if (begin < 0 || end > numel)
    throw RuntimeError("elements [" + std::to_string(begin) + ", " + std::to_string(end) + ") of " + param +
                       " were asked for; " + impl_->folder.string() + " holds " + std::to_string(numel));
  const std::vector<ManifestSlice>& slices = found->second;
  auto first = std::upper_bound(slices.begin(), slices.end(), begin,
                                [](int64_t at, const ManifestSlice& slice) { return at < slice.begin; });
  for (auto slice = first == slices.begin() ? first : first - 1; slice != slices.end() && slice->begin < end; ++slice) {
    const int64_t from = std::max(begin, slice->begin), to = std::min(end, slice->begin + slice->count);
    if (from >= to) continue;
    std::memcpy(destination + (from - begin), impl_->Data(*slice) + (from - slice->begin),
                static_cast<size_t>(to - from) * sizeof(float));
  }
}

}  // namespace ds
