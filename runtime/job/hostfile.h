// The hostfile: which hosts a job may use, and how many slots (workers) each has.
//
//     # comment
//     worker-0 slots=8
//     alice@worker-1 slots=8   # `user@` for ssh
//     [fe80::1] slots=4        # IPv6 addresses, bare or in brackets
//
// One host a line, `HOST slots=N`. Blank lines, comments, CRLF, a byte-order mark and a missing last newline are read
// as meant.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ds {

/// A host and the slots of it that a job uses.
struct HostSlots {
  std::string host;        ///< a name or an address; IPv6 without brackets
  std::string user;        ///< empty: the current user
  std::vector<int> slots;  ///< ascending: 0..N-1 as the hostfile gives them, fewer after filters
  bool operator==(const HostSlots&) const = default;
};

/// Reads hostfile text; `name` stands for the file in messages. Throws UsageError "name:line:column: reason; what to
/// do", one line for each error found, up to 100: other text, slots= absent or not a number from 1 to 65536, more than
/// 2^20 slots in all, the same host twice (compared as written, without regard to case or `user@`), a host that begins
/// with '-' or has more bytes than names may have, no host at all. An IPv4 address that is written as an IPv6 one
/// (::ffff:10.0.0.1) is read as the IPv4 address.
std::vector<HostSlots> ParseHostfile(const std::string& text, const std::string& name);

/// The same from a file. Throws UsageError where it cannot be read.
std::vector<HostSlots> LoadHostfile(const std::string& path);

/// Whether `host` names this machine by loopback: localhost, 127.x.y.z, ::1.
bool IsLoopback(std::string_view host);

/// One spelling of a host: lower case, IPv6 addresses in their shortest form, those that stand for IPv4 ones as such.
/// Hosts are compared by it.
std::string CanonicalHost(std::string_view host);

/// `host` as messages and filters write it: IPv6 addresses in brackets.
std::string Bracketed(std::string_view host);

}  // namespace ds
