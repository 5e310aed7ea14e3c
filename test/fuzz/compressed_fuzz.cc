// Gzip and Zstandard streams: whatever they unpack to, memory stays within the window that is allowed to Zstandard.
#include "runtime/data/byte_source.h"
#include "test/fuzz/fuzz.h"

using namespace ds;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes = fuzz::View(data, size);
  fuzz::Guarded(size, {50, 160 << 20}, {"f:", "f "}, [&] {
    const std::unique_ptr<ByteSource> source = Decompressed(MemorySource(bytes, "f"));
    std::string block(1 << 16, '\0');
    int64_t position = 0;
    for (int i = 0; i < 256; ++i) {  // 16 MiB at most: a kilobyte may unpack to a thousand times more
      const size_t count = source->Read(block.data(), block.size());
      fuzz::Check(count <= block.size(), "more bytes than there is room for");
      fuzz::Check(source->position() >= position && source->position() <= static_cast<int64_t>(size),
                  "the position goes back, or beyond the end");
      position = source->position();
      if (count == 0) break;
    }
  });
  return 0;
}
