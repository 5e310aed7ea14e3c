// `ds-launch --make-identity DIR`: makes a user's site identity, or adds to one and renews it (runtime/site/site.h).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "runtime/job/hostfile.h"

namespace ds {

/// Writes what is missing under `folder` for these hosts, and certificates anew that end within 30 days or have;
/// nothing else is touched. Keys are written with mode 0600, the folders that hold them 0700. Returns a line for each
/// file or folder made, and what to do with them. Throws UsageError where the folder holds something else.
std::vector<std::string> MakeSiteIdentity(const std::filesystem::path& folder, const std::vector<HostSlots>& hosts);

}  // namespace ds
