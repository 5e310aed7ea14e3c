// One rank's part of a checkpoint: the file it writes, and what it tells rank 0 about it.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "runtime/checkpoint/checkpoint.h"

namespace ds {

/// What one rank put into its file.
struct Shard {
  ManifestFile file;
  std::map<std::string, Shape> parameters;  ///< those it holds something of
  std::vector<ManifestSlice> slices;
};

/// Writes and syncs `folder`/rank-R.safetensors. A slice becomes tensor PARAM/STATE@BEGIN (one-dimensional), or
/// PARAM/STATE of the parameter's shape where it is the whole parameter. Nothing to write: an empty, valid file.
Shard WriteShard(const std::filesystem::path& folder, int rank, const std::vector<StateSlice>& slices);

/// A shard's description as text, and back.
std::string Describe(const Shard& shard);
Shard ParseShard(const std::string& text);

}  // namespace ds
