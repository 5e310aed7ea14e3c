// Control groups of this process, found in /proc: where a resource is limited and counted, and groups of our own that
// end everything in them at once.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

namespace ds {

struct CgroupFolder {
  std::filesystem::path root;  ///< where its hierarchy is mounted
  std::filesystem::path path;  ///< this process's group, at or below `root`
  bool unified = false;        ///< version 2
};

/// The groups that this process is in, of the hierarchies that may know `controller` ("memory", "pids"; empty: version
/// 2 alone). Version 2 first. In a test $DS_CGROUP is a folder that stands for the only one, of version 2.
std::vector<CgroupFolder> CgroupFolders(const std::string& controller);

/// A group of version 2 below this process's own, in which processes can be put, and which ends them. Its name tells
/// who made it, so that what a killed maker left behind is recognised.
class ChildCgroup {
 public:
  /// Throws RuntimeError that says what the node does not allow.
  ChildCgroup();
  ~ChildCgroup();  ///< removes it where it is empty
  ChildCgroup(const ChildCgroup&) = delete;
  ChildCgroup& operator=(const ChildCgroup&) = delete;

  const std::filesystem::path& path() const { return path_; }

  /// Puts the calling process in; false and errno where it may not. What it starts from then on is in it too.
  bool Enter() const;

  /// SIGKILLs every process in it and in groups below it, whatever it did to its session, parents or signals, and
  /// removes it; false where some process is left after `seconds`.
  bool Kill(double seconds);

  /// Ends and removes groups of this user beside it whose makers are dead. Never throws.
  static void RemoveLeftovers() noexcept;

 private:
  std::filesystem::path path_;
};

}  // namespace ds
