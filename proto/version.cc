// Alone in its file: a test's program of another build has a definition of its own in this one's place.
#include "proto/version.h"

#ifndef DS_BUILD_VERSION
#error "DS_BUILD_VERSION comes from CMake"
#endif

namespace ds {

const char* BuildVersion() { return DS_BUILD_VERSION; }

}  // namespace ds
