// Token files: as they are, and with the right checksums in the header, so that what is behind them is reached.
#include "runtime/data/token_file.h"

#include <algorithm>
#include <cstring>

#include "runtime/data/token_format.h"
#include "test/fuzz/fuzz.h"

using namespace ds;

namespace {

void Try(std::string_view bytes) {
  const fuzz::MemoryFile file(bytes);
  fuzz::Guarded(bytes.size(), {100, 1 << 20}, {file.path() + ":"}, [&] {
    const TokenFile tokens(file.path());
    const TokenFileInfo& info = tokens.info();
    fuzz::Check(PackTokenHeader(UnpackTokenHeader(PackTokenHeader(info))) == PackTokenHeader(info),
                "the header prints as another");
    std::vector<int32_t> out(static_cast<size_t>(std::min<int64_t>(info.tokens, 64)));
    tokens.Read(info.tokens - static_cast<int64_t>(out.size()), static_cast<int64_t>(out.size()), out.data());
    if (info.documents > 0) tokens.Document(info.documents - 1);
    tokens.Verify();
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes = fuzz::View(data, size);
  Try(bytes);
  if (size < kTokenHeaderBytes) return 0;
  std::string sealed(bytes);
  const auto put = [&](size_t at, uint64_t value) { std::memcpy(sealed.data() + at, &value, sizeof value); };
  put(104, Checksum(std::string_view(sealed).substr(kTokenHeaderBytes)));
  put(120, Checksum(std::string_view(sealed).substr(0, 120)));
  Try(sealed);
  return 0;
}
