// Three network namespaces on one machine: a launcher's, and two nodes', joined by a switch.
//
//     launcher  eth0 10.77.0.1  ib0 10.78.0.1 (a second network)
//     node 0    eth0 10.77.0.2  ib0 10.78.0.2
//     node 1    eth0 10.77.0.3  ib0 10.78.0.3
//
// Each link can be set down or made to swallow packets one way.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "test/cluster_ssh/sshd.h"

namespace ds::test {

class Namespaces {
 public:
  /// Nothing where this machine allows no network namespaces; the test says so.
  static std::unique_ptr<Namespaces> Make();
  ~Namespaces();

  std::string Path(const std::string& which) const { return "/run/netns/" + Name(which); }  ///< launcher, node0, node1
  std::string Address(int node) const { return "10.77.0." + std::to_string(node + 2); }

  /// The link between a node and the switch.
  void SetLink(int node, bool up) const;
  /// What the launcher sends to the node is lost; the node's own packets arrive.
  void SwallowTowards(int node) const;
  /// The other way round.
  void SwallowFrom(int node) const;

 private:
  explicit Namespaces(std::string prefix) : prefix_(std::move(prefix)) {}
  std::string Name(const std::string& which) const { return prefix_ + "-" + which; }
  bool Ip(std::vector<std::string> arguments) const;
  bool In(const std::string& which, std::vector<std::string> arguments) const;
  bool Build() const;

  std::string prefix_;
};

}  // namespace ds::test
