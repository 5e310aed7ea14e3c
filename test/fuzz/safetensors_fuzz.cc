// Safetensors files: the header's JSON behind its length. Every byte of every tensor that the file says it has is
// there.
#include <cstring>

#include "runtime/base/checksum.h"
#include "runtime/checkpoint/safetensors.h"
#include "test/fuzz/fuzz.h"

using namespace ds;

namespace {

void Try(std::string_view bytes) {
  const fuzz::MemoryFile file(bytes);
  fuzz::Guarded(bytes.size(), {3000, 64 << 10}, {file.path() + ":"}, [&] {
    const SafetensorsFile tensors(file.path());
    int64_t sum = 0;
    for (const auto& [name, entry] : tensors.entries()) {
      Checksum({entry.data, static_cast<size_t>(entry.bytes)});
      fuzz::Check(entry.numel() >= 0 && (entry.numel() == 0) == (entry.bytes == 0), "elements and bytes differ", name);
      sum += entry.bytes;
    }
    fuzz::Check(sum <= static_cast<int64_t>(bytes.size()), "more tensors than bytes");
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes = fuzz::View(data, size);
  Try(bytes);
  // The same with a length that fits: the header ends at the last brace.
  if (const size_t end = bytes.rfind('}'); size > 8 && end != std::string_view::npos && end >= 8) {
    std::string fitting(bytes);
    const uint64_t header = end + 1 - 8;
    std::memcpy(fitting.data(), &header, sizeof header);
    Try(fitting);
  }
  return 0;
}
