// What NCCL is told through the environment, because its API has no way to say it: which network interface to use, and
// which algorithm. Needs no NCCL.
#pragma once

#include <string>
#include <vector>

namespace ds {

struct EnvironmentVariable {
  std::string name, value;
};

/// The network interface that has `address` (numeric; "lo" for all of 127.0.0.0/8). Throws RuntimeError where none has.
std::string InterfaceOf(const std::string& address);

/// - NCCL_SOCKET_IFNAME, NCCL_SOCKET_FAMILY: the interface that has `interface_address`;
/// - NCCL_NVLS_ENABLE=0: switches do not add: they would in an order of their own;
/// - `pinned`: NCCL_ALGO=Ring, NCCL_PROTO=Simple, so that a sum's order follows from the ranks, the size and the
/// channels
///   and never from what NCCL expects to be fast.
std::vector<EnvironmentVariable> NcclEnvironment(const std::string& interface_address, bool pinned);

/// Sets the variables that are not set, and returns all of them as they now are, for the log: "NCCL_ALGO=Ring", or
/// "NCCL_ALGO=Tree (set by the user)". Must come before NCCL's first call, and while no other thread reads variables.
std::string SetEnvironment(const std::vector<EnvironmentVariable>& variables);

}  // namespace ds
