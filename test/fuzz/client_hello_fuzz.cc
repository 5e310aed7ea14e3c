// The ClientHello of a stranger. What is one stays one however its bytes come: each beginning of it is incomplete, and
// bytes behind it change nothing.
#include "proto/client_hello.h"

#include "test/fuzz/fuzz.h"

using namespace ds;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  for (const char* name : {"launcher.0123456789abcdef.deepshard", "*.node.deepshard"}) {
    ClientHello seen = ClientHello::incomplete;
    fuzz::Guarded(size, {0, 4096}, {}, [&] { seen = LookAtClientHello(data, size, name); });
    if (seen != ClientHello::wanted) continue;
    const size_t length = 5 + (static_cast<size_t>(data[3]) << 8 | data[4]);
    for (size_t part = 0; part < length; part += 1 + length / 64) {
      fuzz::Check(LookAtClientHello(data, part, name) == ClientHello::incomplete, "a beginning is not incomplete");
    }
    fuzz::Check(LookAtClientHello(data, length, name) == ClientHello::wanted, "bytes behind it matter");
  }
  return 0;
}
