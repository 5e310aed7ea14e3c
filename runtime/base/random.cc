#include "runtime/base/random.h"

#include <sys/random.h>

#include <cerrno>
#include <vector>

#include "runtime/base/error.h"

namespace ds {

std::string RandomHex(int bytes) {
  std::vector<unsigned char> random(static_cast<size_t>(bytes));
  for (size_t done = 0; done < random.size();) {
    const ssize_t n = ::getrandom(random.data() + done, random.size() - done, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw SystemError("cannot draw random bytes", errno);
    done += static_cast<size_t>(n);
  }
  std::string text;
  for (unsigned char byte : random) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

}  // namespace ds
