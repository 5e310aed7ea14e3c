// Files that decide who may run a job: read only where nobody else could have written, or may read, them.
#pragma once

#include <filesystem>
#include <string>

namespace ds {

enum class Guard {
  unchanged,  ///< nobody but its owner may write it
  secret,     ///< nor read it
};

/// The file's text, 1 MiB at most. It must be a regular file that this user, or root, owns, with a mode that keeps
/// others (the group too) from writing it, and of a secret from reading it; its folder must be one in which nobody else
/// can replace it. Throws UsageError with path, owner or mode, and what to do.
std::string ReadGuardedFile(const std::filesystem::path& path, Guard guard);

}  // namespace ds
