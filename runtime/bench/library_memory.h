// What a GPU's libraries take of its memory in a process that trains.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace ds {

struct LibraryUse {
  int64_t before = 0;  ///< bytes of the device in use before this process touched it
  /// By what was loaded, in this order: the bytes that the device's use grew by. Code is loaded as it is first called.
  std::vector<std::pair<std::string, int64_t>> parts;
  int64_t Sum() const {
    int64_t sum = 0;
    for (const auto& [name, bytes] : parts) sum += bytes;
    return sum;
  }
};

/// Opens the GPU and calls kernels of each library, as training does, with nothing of its own left allocated. For a
/// process that has not touched the GPU yet, while nobody else uses it: the driver tells the use of the whole device.
/// Throws RuntimeError where the driver does not tell it (libnvidia-ml).
LibraryUse MeasureLibraryMemory(int gpu, int threads);

}  // namespace ds
