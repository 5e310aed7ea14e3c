// CUDA_VISIBLE_DEVICES as CUDA reads it (CUDA C++ Programming Guide, "CUDA Environment Variables"), without CUDA.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/nvml.h"

namespace ds {

/// A GPU of the machine, and its instances where it is divided (MIG): it computes as these alone then.
struct GpuUnit {
  GpuFacts gpu;
  bool divided = false;
  std::vector<GpuFacts> instances;
};

/// What a list leaves of `units`, in the list's order. Its first entry says what all are:
///   - numbers, which count the GPUs in the order of PCI addresses; blanks around them and text behind them do not
///     matter; a divided GPU's number stands for its first instance;
///   - UUIDs of GPUs, or beginnings of them ("GPU-8f2a"), each of one GPU;
///   - UUIDs of instances ("MIG-..."), or beginnings of them.
/// The first entry that is none of these, or names no unit or several, ends the list (-1, NoDevFiles): those before it
/// count. A unit that is named twice leaves none at all. No list: everything.
std::vector<GpuFacts> SelectVisible(const std::vector<GpuUnit>& units, std::optional<std::string_view> list);

/// What to write into CUDA_VISIBLE_DEVICES for `gpus`, as SelectVisible gave them for `list`: UUIDs where the list has
/// them or where one is an instance, else numbers.
std::string VisibleList(const std::vector<GpuFacts>& gpus, std::optional<std::string_view> list);

}  // namespace ds
