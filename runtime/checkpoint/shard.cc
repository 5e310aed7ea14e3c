#include "runtime/checkpoint/shard.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/base/failpoint.h"
#include "runtime/base/json.h"
#include "runtime/base/number.h"
#include "runtime/checkpoint/safetensors.h"

namespace ds {
namespace {

std::vector<int64_t> Dims(const Shape& shape) {
  std::vector<int64_t> dims;
  for (int i = 0; i < shape.rank(); ++i) dims.push_back(shape[i]);
  return dims;
}

void CheckSlice(const StateSlice& slice) {
  const std::string what = "slice of " + slice.param;
  if (!slice.read && slice.data.dtype != DType::f32)
    throw RuntimeError(what + " is " + NameOf(slice.data.dtype) + ", not f32");
  if (!slice.read && slice.data.device.kind != DeviceKind::cpu && !slice.gpu)
    throw RuntimeError(what + " is on a GPU, and no GPU was given");
  if (slice.begin < 0 || slice.count() <= 0 || slice.count() > slice.shape.numel() - slice.begin)
    throw RuntimeError(what + " [" + std::to_string(slice.begin) + ", +" + std::to_string(slice.count()) +
                       ") is not within " + slice.shape.str());
}

/// A slice that is not in the host's memory passes through `staged`, a piece at a time.
void Append(SafetensorsWriter& writer, const StateSlice& slice, std::vector<float>& staged) {
  if (!slice.read && slice.data.device.kind == DeviceKind::cpu)
    return writer.Append(slice.data.data, slice.data.bytes());
  constexpr int64_t kPiece = 4 << 20;  // elements
  staged.resize(static_cast<size_t>(std::min(kPiece, slice.count())));
  for (int64_t begin = 0; begin < slice.count(); begin += kPiece) {
    const int64_t count = std::min(kPiece, slice.count() - begin);
    const Tensor piece = Tensor::Of(staged.data(), Shape{count});
    if (slice.read)
      slice.read(begin, piece);
    else
      CopyNow(slice.gpu, slice.data.Flat(begin, count), piece);
    writer.Append(piece.data, piece.bytes());
  }
}

}  // namespace

Shard WriteShard(const std::filesystem::path& folder, int rank, const std::vector<StateSlice>& slices) {
  Shard shard;
  shard.file.name = "rank-" + std::to_string(rank) + ".safetensors";
  std::vector<SafetensorsEntry> entries;
  for (const StateSlice& slice : slices) {
    CheckSlice(slice);
    const bool whole = slice.count() == slice.shape.numel();
    std::string tensor = slice.param + "/" + CheckpointStateName(slice.state);
    if (!whole) tensor += "@" + std::to_string(slice.begin);
    entries.push_back({tensor, DType::f32, whole ? Dims(slice.shape) : std::vector<int64_t>{slice.count()}});
    shard.parameters[slice.param] = slice.shape;
    shard.slices.push_back({slice.param, slice.state, slice.begin, slice.count(), shard.file.name, tensor});
  }
  SafetensorsWriter writer(folder / shard.file.name, std::move(entries), {{"format", "deepshard-checkpoint"}});
  Failpoint("checkpoint.shard");
  std::vector<float> staged;
  for (const StateSlice& slice : slices) Append(writer, slice, staged);
  SafetensorsWriter::Result result = writer.Finish();
  shard.file.bytes = result.bytes;
  shard.file.xxh64 = result.xxh64;
  return shard;
}

std::string Describe(const Shard& shard) {
  JsonWriter json;
  json.BeginObject()
      .Field("name", shard.file.name)
      .Field("bytes", shard.file.bytes)
      .Field("xxh64", shard.file.xxh64)
      .Key("slices")
      .BeginList();
  for (const ManifestSlice& slice : shard.slices)
    json.BeginList()
        .Write(slice.param)
        .Write(static_cast<int>(slice.state))
        .Write(slice.begin)
        .Write(slice.count)
        .Write(slice.tensor)
        .EndList();
  json.EndList().Key("parameters").BeginList();
  for (const auto& [name, shape] : shard.parameters) {
    json.BeginList().Write(name);
    for (int i = 0; i < shape.rank(); ++i) json.Write(shape[i]);
    json.EndList();
  }
  return json.EndList().EndObject().str();
}

Shard ParseShard(const std::string& text) {
  Value root = ParseJson(text, "a rank's shard");
  Shard shard;
  shard.file = {root.Find("name")->text, AsInteger(*root.Find("bytes")), AsUnsigned(*root.Find("xxh64"))};
  for (const Value& item : root.Find("slices")->items) {
    const std::vector<Value>& field = item.items;
    shard.slices.push_back({field[0].text, static_cast<StateKind>(AsInteger(field[1])), AsInteger(field[2]),
                            AsInteger(field[3]), shard.file.name, field[4].text});
  }
  for (const Value& item : root.Find("parameters")->items) {
    int64_t d[Shape::kMaxRank] = {};
    const size_t rank = item.items.size() - 1;
    for (size_t i = 0; i < rank; ++i) d[i] = AsInteger(item.items[i + 1]);
    shard.parameters[item.items[0].text] = rank == 1   ? Shape{d[0]}
                                           : rank == 2 ? Shape{d[0], d[1]}
                                           : rank == 3 ? Shape{d[0], d[1], d[2]}
                                                       : Shape{d[0], d[1], d[2], d[3]};
  }
  return shard;
}

}  // namespace ds
