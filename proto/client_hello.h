// The name that a TLS ClientHello asks for, read off the first bytes of a connection: all that strangers can make this
// project's own code read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace ds {

/// What the first bytes of a connection are, as far as `size` of them are known.
enum class ClientHello {
  incomplete,  ///< may become one
  wanted,      ///< whole, and it asks for the name
  foreign,     ///< no ClientHello, or for somebody else
};
/// RFC 8446 and 6066: a ClientHello in one record, whose server_name extension is `server_name`; "*.REST" stands for
/// all names that end so.
ClientHello LookAtClientHello(const uint8_t* bytes, size_t size, const std::string& server_name);

/// No ClientHello that is let in is longer.
constexpr size_t kMaxClientHelloBytes = 5 + (1 << 14);

}  // namespace ds
