// Which cores and which memory each worker of a node gets: near its GPU where it has one, else a share of the node.
//
// A node is cut into domains, the NUMA nodes that have cores. A worker with a GPU belongs to the cores that the system
// says are local to it; those near the same cores share them out in the order of their ranks. Workers without GPUs, and
// all workers where the place of one GPU is not known, are spread over the domains by the number of cores; where there
// are more domains than workers, a worker gets several. Cores go with all their hardware threads while there is one for
// each worker, then hardware threads one by one, and then these are shared. What the agent may not use (a cgroup's
// cpuset, taskset) nobody gets.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace ds {

struct Binding {
  std::string cpus;    ///< hardware threads as Linux numbers them: "0-7,64-71"
  std::string memory;  ///< NUMA nodes, likewise; preferred, not forced
  int threads = 0;     ///< how many `cpus` are
  std::string near;    ///< the PCI address of the GPU that they are near; empty: no GPU's
  bool operator==(const Binding&) const = default;
};

/// "CPUs 0-7, memory 0, near GPU 0000:17:00.0"
std::string BindingText(const Binding& binding);

class Topology {
 public:
  /// What this process may use of this machine. HWLOC_XMLFILE (of hwloc(7)) puts a saved one in its place, in which
  /// nothing is really bound: for tests. Throws RuntimeError.
  static Topology OfThisMachine();
  /// A saved one.
  static Topology FromXml(const std::string& path);
  ~Topology();
  Topology(Topology&&) noexcept;

  /// "2 sockets, 2 NUMA nodes, 16 cores, 32 threads"
  std::string Text() const;

  /// One a worker; `gpus`: the PCI addresses of their GPUs (domain:bus:device.function), empty for one without.
  std::vector<Binding> ShareOut(const std::vector<std::string>& gpus) const;

  /// Runs `body`; what it starts (fork) from the calling thread is bound, and the thread itself while it runs. Returns
  /// what could not be done, empty: nothing. Memory is bound where the system lets us.
  std::string Bound(const Binding& binding, const std::function<void()>& body) const;

 private:
  struct Impl;
  explicit Topology(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ds
