// A checkpoint's manifest: as it is, and with the right checksum at its end, so that what is behind it is reached. What
// is read prints as a manifest that reads back to the same.
#include "runtime/plan/manifest.h"

#include "runtime/base/checksum.h"
#include "test/fuzz/fuzz.h"

using namespace ds;

namespace {

/// `text` without its closing brace and what follows, then the field xxh64 that belongs to it.
std::string Sealed(std::string text) {
  const size_t tail = text.find(",\"xxh64\":\"", text.size() < 40 ? 0 : text.size() - 40);
  text = text.substr(0, tail == std::string::npos ? text.find_last_of('}') : tail);
  return text + ",\"xxh64\":\"" + ChecksumText(Checksum(text)) + "\"}\n";
}

void Try(const std::string& text) {
  Manifest manifest;
  if (!fuzz::Guarded(text.size(), {3000, 64 << 10}, {"manifest.json:"},
                     [&] { manifest = ParseManifest(text, "manifest.json"); }))
    return;
  const std::string printed = ToJson(manifest);
  fuzz::Check(ToJson(ParseManifest(printed, "printed")) == printed, "the manifest prints as another", printed);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(fuzz::View(data, size));
  Try(text);
  Try(Sealed(text));
  return 0;
}
