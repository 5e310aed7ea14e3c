#include "proto/client_hello.h"

#include <string_view>

namespace ds {
namespace {

constexpr uint8_t kHandshakeRecord = 22, kClientHelloMessage = 1, kHostName = 0;
constexpr uint16_t kServerNameExtension = 0;

/// Reads big-endian numbers and blocks; once something is missing, `good` is false and everything is empty.
struct Reader {
  const uint8_t* data;
  size_t size;
  bool good = true;

  size_t Number(int bytes) {
    const Reader block = Take(static_cast<size_t>(bytes));
    size_t value = 0;
    for (size_t i = 0; i < block.size; ++i) value = value << 8 | block.data[i];
    return value;
  }
  Reader Take(size_t bytes) {
    if (bytes > size) {
      good = false;
      size = 0;
      return {data, 0, false};
    }
    Reader block{data, bytes, true};
    data += bytes;
    size -= bytes;
    return block;
  }
  /// A block after its length, of `bytes` bytes.
  Reader Block(int bytes) {
    const size_t length = Number(bytes);
    return Take(length);
  }
};

bool AsksFor(Reader names, const std::string& server_name) {
  Reader list = names.Block(2);
  while (list.good && list.size > 0) {
    const size_t type = list.Number(1);
    const Reader name = list.Block(2);
    if (!list.good || type != kHostName) continue;
    std::string_view asked(reinterpret_cast<const char*>(name.data), name.size), wanted = server_name;
    if (!wanted.starts_with("*.")) return asked == wanted;
    wanted.remove_prefix(1);
    return asked.size() > wanted.size() && asked.ends_with(wanted);
  }
  return false;
}

}  // namespace

ClientHello LookAtClientHello(const uint8_t* bytes, size_t size, const std::string& server_name) {
  // Record: type, version (3.x), length; message: type, length. What is there must fit, what is not may still come.
  if (size > 0 && bytes[0] != kHandshakeRecord) return ClientHello::foreign;
  if (size > 1 && bytes[1] != 3) return ClientHello::foreign;
  if (size < 5) return ClientHello::incomplete;
  const size_t length = static_cast<size_t>(bytes[3]) << 8 | bytes[4];
  if (length < 4 || length > kMaxClientHelloBytes - 5) return ClientHello::foreign;
  if (size > 5 && bytes[5] != kClientHelloMessage) return ClientHello::foreign;
  if (size < 5 + length) return ClientHello::incomplete;
  Reader record{bytes + 5, length};
  record.Number(1);
  Reader hello = record.Block(3);
  hello.Take(2 + 32);  // version, random
  hello.Block(1);      // session
  hello.Block(2);      // cipher suites
  hello.Block(1);      // compression
  Reader extensions = hello.Block(2);
  if (!record.good || !hello.good) return ClientHello::foreign;
  while (extensions.good && extensions.size > 0) {
    const size_t type = extensions.Number(2);
    const Reader extension = extensions.Block(2);
    if (extensions.good && type == kServerNameExtension) {
      return AsksFor(extension, server_name) ? ClientHello::wanted : ClientHello::foreign;
    }
  }
  return ClientHello::foreign;
}

}  // namespace ds
