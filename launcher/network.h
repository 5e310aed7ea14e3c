// Which of this machine's addresses agents dial.
#pragma once

#include <string>

namespace ds {

struct LaunchNetwork {
  std::string bind;   ///< what the launcher listens on
  std::string reach;  ///< what agents are told to dial; both without a port, IPv6 in brackets
};

/// `on_this_machine`: loopback. Otherwise all interfaces, and the first address that is no loopback's; loopback where
/// there is none.
LaunchNetwork ChooseNetwork(bool on_this_machine);

}  // namespace ds
