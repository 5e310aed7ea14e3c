#include "runtime/checkpoint/export.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/safetensors.h"

namespace ds {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kBlock = 1 << 20;  // elements

void AppendParameter(const CheckpointReader& reader, const std::string& name, int64_t numel, DType dtype,
                     SafetensorsWriter& writer) {
  std::vector<float> block(static_cast<size_t>(std::min(kBlock, numel)));
  std::vector<bf16> rounded(dtype == DType::bf16 ? block.size() : 0);
  for (int64_t at = 0; at < numel; at += kBlock) {
    const int64_t count = std::min(kBlock, numel - at);
    reader.Read(name, StateKind::master, at, Tensor::Of(block.data(), {count}));
    if (dtype == DType::f32) {
      writer.Append(block.data(), count * 4);
      continue;
    }
    std::transform(block.begin(), block.begin() + count, rounded.begin(), [](float value) { return bf16(value); });
    writer.Append(rounded.data(), count * 2);
  }
}

}  // namespace

int64_t ExportParameters(const fs::path& folder, const fs::path& output, DType dtype, bool force) {
  if (dtype != DType::f32 && dtype != DType::bf16)
    throw UsageError(std::string("parameters are exported as f32 or bf16, not ") + NameOf(dtype));
  std::error_code error;
  const fs::path around = fs::weakly_canonical(output, error).parent_path();
  if (fs::exists(around / "manifest.json", error))
    throw UsageError(output.string() + " is inside the checkpoint " + around.string() +
                     ", which another file would damage; write it elsewhere");
  if (!force && fs::exists(output, error)) throw UsageError(output.string() + " exists; --force replaces it");
  CheckpointReader reader(folder);
  std::vector<SafetensorsEntry> entries;
  int64_t elements = 0;
  for (const auto& [name, shape] : reader.parameters()) {
    SafetensorsEntry entry{name, dtype, {}};
    for (int i = 0; i < shape.rank(); ++i) entry.shape.push_back(shape[i]);
    entries.push_back(std::move(entry));
    elements += shape.numel();
  }
  const fs::path temporary = output.string() + ".tmp." + std::to_string(::getpid());
  ::unlink(temporary.c_str());
  try {
    SafetensorsWriter writer(temporary, std::move(entries),
                             {{"format", "pt"}, {"step", std::to_string(reader.state().step)}});
    for (const auto& [name, shape] : reader.parameters()) AppendParameter(reader, name, shape.numel(), dtype, writer);
    writer.Finish();
    if (::rename(temporary.c_str(), output.c_str()) != 0)
      throw SystemError("cannot rename " + temporary.string() + " to " + output.string(), errno);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  SyncPath(output.has_parent_path() ? output.parent_path() : fs::path("."));
  return elements;
}

}  // namespace ds
