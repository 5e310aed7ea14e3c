// Which hosts of a hostfile are the machine that ds-launch runs on.
#pragma once

#include <string>

namespace ds {

/// Whether `host` (a name or an address; IPv6 without brackets) is this machine: loopback, its own name, an address of
/// one of its interfaces, or another name all of whose addresses are (an alias, the full name). Asks the resolver for
/// names that are not its own.
bool IsThisMachine(const std::string& host);

}  // namespace ds
