// Free space where the job writes.
#include <sys/statvfs.h>

#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>

#include "agent/preflight/preflight.h"

namespace ds {

namespace pb = ::deepshard::v1;
namespace fs = std::filesystem;

void LookAtDisks(const pb::Bootstrap& bootstrap, pb::NodeFacts& found, pb::NodeFacts::Check& check) {
  const char* temporary = std::getenv("TMPDIR");
  std::set<std::string> paths{"/", "/tmp"};
  if (temporary && *temporary) paths.insert(temporary);
  if (!bootstrap.token_path().empty()) paths.insert(fs::path(bootstrap.token_path()).parent_path().string());
  for (const std::string& path : paths) {
    struct statvfs info {};
    if (::statvfs(path.c_str(), &info) != 0) continue;  // not there: shared-output says so
    auto* disk = found.add_disks();
    disk->set_path(path);
    disk->set_size(static_cast<int64_t>(info.f_blocks) * static_cast<int64_t>(info.f_frsize));
    disk->set_free(static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize));
    if (info.f_files > 0 && info.f_favail == 0 && path != "/") {
      check.set_passed(false);
      check.set_text("no file can be made at " + path + ": its file system has no inode left; remove files there");
    }
  }
}

}  // namespace ds
