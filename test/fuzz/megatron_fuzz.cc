// Indices of Megatron-LM's datasets. The documents of one that is taken follow each other.
#include "runtime/data/megatron.h"

#include <cstring>

#include "test/fuzz/fuzz.h"

using namespace ds;

namespace {

void Try(std::string_view bytes) {
  fuzz::Guarded(bytes.size(), {10, 64 << 10}, {"f.idx:"}, [&] {
    const MegatronIndex index(bytes, "f.idx");
    int64_t begin = 0;
    fuzz::Check(index.DocumentBegin(0) == 0, "the first document does not begin at the first token");
    for (int64_t i = 0; i <= index.documents(); ++i) {
      fuzz::Check(index.DocumentBegin(i) >= begin, "a document begins before the one before it");
      begin = index.DocumentBegin(i);
    }
    fuzz::Check(begin == index.tokens(), "the last document does not end at the last token");
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes = fuzz::View(data, size);
  Try(bytes);
  if (size < 34) return 0;
  // The same with counts that fit the size: as many sequences of 12 bytes as there is room for, boundaries for the
  // rest.
  std::string fitting(bytes.substr(0, size - (size - 34) % 4));
  const uint64_t room = fitting.size() - 34, sequences = (room / 20) & ~uint64_t{1};
  const uint64_t boundaries = (room - sequences * 12) / 8;
  fitting.resize(34 + sequences * 12 + boundaries * 8);
  std::memcpy(fitting.data() + 18, &sequences, 8);
  std::memcpy(fitting.data() + 26, &boundaries, 8);
  Try(fitting);
  return 0;
}
