#include "runtime/base/secret.h"

#include <string.h>
#include <sys/prctl.h>

#include <cstdlib>

namespace ds {

void KeepMemoryPrivate() {
  if (!std::getenv(kDebuggableVariable)) ::prctl(PR_SET_DUMPABLE, 0);
}

void Wipe(std::string& text) {
  ::explicit_bzero(text.data(), text.size());
  text.clear();
}

}  // namespace ds
