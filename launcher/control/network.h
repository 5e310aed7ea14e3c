// Which of this machine's addresses agents dial.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/base/interface.h"
#include "runtime/job/hostfile.h"

namespace ds {

struct LaunchNetwork {
  std::string bind;                ///< what the launcher listens on: one address, or all where there are several
  std::vector<std::string> reach;  ///< what agents are told to dial, the best first; IPv6 in brackets, all without port
  std::string reason;              ///< for people: "the way to 3 hosts"

  /// `reach` with commas between.
  std::string Reach() const;
};

/// The name or address by which a host is found in the network; the bootstrap may know better than the hostfile.
using NetworkNameOf = std::function<std::string(const HostSlots&)>;

/// - all hosts loopback, or `on_this_machine`: loopback;
/// - `wanted` (launch.interface) not auto, and an interface of this machine is it: its addresses;
/// - else the addresses from which the kernel would reach the hosts (the first 64; 3 s for looking names up). Where
/// some
///   cannot be looked up, all other addresses too. Names of this machine are not asked, nor what an address is called.
/// Throws RuntimeError where there is no address at all.
LaunchNetwork ChooseNetwork(bool on_this_machine, const std::vector<HostSlots>& hosts, const std::string& wanted,
                            const NetworkNameOf& name_of);

}  // namespace ds
