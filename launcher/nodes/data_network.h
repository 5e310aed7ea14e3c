// Which address of each node data connections (NCCL, Gloo, a program's MASTER_ADDR) use.
#pragma once

#include <string>
#include <vector>

#include "launcher/job/rank_map.h"
#include "runtime/job/hostfile.h"

namespace ds {

struct NodeAddress {
  std::string address;    ///< numeric, IPv6 without brackets
  std::string interface;  ///< its name on the node; empty: not known
};

struct DataNetwork {
  std::vector<NodeAddress> nodes;
  std::vector<PreflightTrouble> troubles;  ///< nodes that have no such address; `nodes` is of no use then

  /// "10.0.0.1 (eth0) on w0, 10.0.0.2 (eth0) on w1"; of many nodes how many use which interface.
  std::string Text(const std::vector<HostSlots>& hosts) const;
};

/// `wanted` is launch.interface. A name, an address or a network: on each node the first interface that is up and is
/// it, of a family that all have (IPv4 before IPv6). auto: on one machine (`on_this_machine`) loopback, the host's own
/// where the hostfile gives such an address; else the address from which the node's agent reached the launcher, or,
/// where these are of both families, one of the same interface of a family that all have.
DataNetwork ChooseDataNetwork(const std::vector<HostSlots>& hosts, const std::vector<deepshard::v1::NodeFacts>& facts,
                              const std::string& wanted, bool on_this_machine);

}  // namespace ds
