// The sections of the table of keys (keys.h), each in a file of its own: NAME_keys.cc, the short ones in keys.cc.
#pragma once

#include <vector>

#include "runtime/job/keys.h"

namespace ds {

std::vector<Key> ModelKeys();
std::vector<Key> ParallelKeys();
std::vector<Key> LaunchKeys();

}  // namespace ds
