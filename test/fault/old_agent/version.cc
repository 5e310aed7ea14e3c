// ds-agent of another build: what BuildVersion() of proto/version.cc says is said otherwise here.
#include "proto/version.h"

namespace ds {

const char* BuildVersion() { return "0.0.9"; }

}  // namespace ds
