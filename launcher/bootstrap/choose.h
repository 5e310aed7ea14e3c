// How agents are brought up where the user leaves it to ds-launch, and why so.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/job/hostfile.h"

namespace ds {

struct BootstrapChoice {
  std::string kind;    ///< local, ssh, slurm, mpi or daemon
  std::string reason;  ///< for people: "every host is this machine"
  std::string Text() const { return kind + " (" + reason + ")"; }
};

/// A variable of the environment by its name; null where it is not set.
using EnvironmentLookup = std::function<const char*(const char*)>;

/// `asked`: launch.bootstrap or --bootstrap. `auto` becomes, in this order:
/// - slurm inside a SLURM allocation, unless every host is a loopback address;
/// - local where every host is this machine;
/// - ssh.
/// Anything else is taken as it is.
BootstrapChoice ChooseBootstrap(const std::string& asked, const std::vector<HostSlots>& hosts,
                                const EnvironmentLookup& variable);
BootstrapChoice ChooseBootstrap(const std::string& asked, const std::vector<HostSlots>& hosts);  ///< own environment

}  // namespace ds
