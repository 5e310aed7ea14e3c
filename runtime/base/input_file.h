// Files that a user names to be read whole: a hostfile, a job file, a configuration.
#pragma once

#include <cstddef>
#include <string>

namespace ds {

constexpr size_t kMostInputBytes = size_t{64} << 20;

/// What `path` holds. Only what ends is read: a regular file, or a pipe that this process was handed (/dev/stdin,
/// /dev/fd/N, /proc/self/fd/N: `<(COMMAND)` of a shell), of at most `most` bytes. A pipe gives its bytes once; they are
/// kept for who reads the same name again. Throws RuntimeError that names the path and what it is: a folder, a device,
/// a named pipe, a socket, too long; SystemError where the system refuses. Call on one thread.
std::string ReadInputFile(const std::string& path, size_t most = kMostInputBytes);

/// Why `path` is no file for another program to read, which gets none of our descriptors; empty: it is one.
std::string WhyNoFile(const std::string& path);

}  // namespace ds
