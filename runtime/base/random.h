// Random bytes of the system's generator, for names that must not be guessed or met twice.
#pragma once

#include <string>

namespace ds {

/// `bytes` random bytes as hexadecimal. Throws SystemError.
std::string RandomHex(int bytes);

}  // namespace ds
