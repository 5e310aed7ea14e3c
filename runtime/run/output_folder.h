// The folder that a job's runs go into, OUTPUT/NAME, made or found in a place where nobody else can put something in
// its stead: run directories lie in shared file systems, and in /tmp.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <string>

namespace ds {

/// Makes what is missing of OUTPUT/NAME and returns its absolute path. Throws UsageError naming the path, its owner and
/// what to do, where
/// - a symbolic link on the way belongs to neither `user` nor root and lies where everybody may put one;
/// - OUTPUT or NAME may be written by everybody, unless OUTPUT is like /tmp: sticky, and root's or the user's;
/// - NAME belongs to another user in an OUTPUT that everybody may write;
/// - NAME/latest is there and is no symbolic link: it is to be replaced by one.
/// `user`: whose place it must be.
std::filesystem::path PrepareOutputFolder(const std::filesystem::path& output, const std::string& name,
                                          uid_t user = ::geteuid());

}  // namespace ds
