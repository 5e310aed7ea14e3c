// What the kernel tells of O_DIRECT.
#pragma once

#include <cstdint>

namespace ds {

/// Of memory, for O_DIRECT on the file, by statx(2); 0 where the kernel (before 6.1) or the file system does not tell.
int64_t DirectMemoryAlignment(int fd);

}  // namespace ds
