#include "agent/affinity.h"

#include <hwloc.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace ds {
namespace {

/// A set of hardware threads or NUMA nodes.
class Set {
 public:
  Set() : bits_(hwloc_bitmap_alloc()) {}
  explicit Set(hwloc_const_bitmap_t bits) : bits_(hwloc_bitmap_dup(bits)) {}
  Set(const Set& other) : Set(other.bits_) {}
  Set(Set&& other) noexcept : bits_(std::exchange(other.bits_, nullptr)) {}
  Set& operator=(Set other) noexcept {
    std::swap(bits_, other.bits_);
    return *this;
  }
  ~Set() { hwloc_bitmap_free(bits_); }

  hwloc_bitmap_t get() const { return bits_; }
  int count() const { return std::max(0, hwloc_bitmap_weight(bits_)); }
  bool empty() const { return hwloc_bitmap_iszero(bits_) != 0; }
  void Add(hwloc_const_bitmap_t other) { hwloc_bitmap_or(bits_, bits_, other); }
  bool Has(hwloc_const_bitmap_t other) const { return hwloc_bitmap_isincluded(other, bits_) != 0; }
  bool operator==(const Set& other) const { return hwloc_bitmap_isequal(bits_, other.bits_) != 0; }
  bool operator<(const Set& other) const { return hwloc_bitmap_compare(bits_, other.bits_) < 0; }

  std::string Text() const {
    char* text = nullptr;
    hwloc_bitmap_list_asprintf(&text, bits_);
    std::string result = text ? text : "";
    std::free(text);
    return result;
  }

 private:
  hwloc_bitmap_t bits_;
};

/// The cores of a domain, each with its hardware threads, or these one by one where workers are more than cores.
std::vector<Set> Pieces(hwloc_topology_t topology, const Set& domain, size_t workers) {
  std::vector<Set> cores, threads;
  for (auto [type, out] : {std::pair(HWLOC_OBJ_CORE, &cores), std::pair(HWLOC_OBJ_PU, &threads)}) {
    for (hwloc_obj_t object = nullptr;
         (object = hwloc_get_next_obj_inside_cpuset_by_type(topology, domain.get(), type, object));)
      out->emplace_back(object->cpuset);
  }
  return cores.size() >= workers ? cores : threads;
}

/// Cuts a domain for `workers`: runs of pieces, which differ by one piece at most; shared where there are too few.
std::vector<Set> Cut(hwloc_topology_t topology, const Set& domain, size_t workers) {
  const std::vector<Set> pieces = Pieces(topology, domain, workers);
  std::vector<Set> shares(workers);
  for (size_t worker = 0; worker < workers; ++worker) {
    const size_t first = worker * pieces.size() / workers;
    const size_t last = std::max(first + 1, (worker + 1) * pieces.size() / workers);
    for (size_t i = first; i < last && i < pieces.size(); ++i) shares[worker].Add(pieces[i].get());
  }
  return shares;
}

/// How many of `workers`, which are as many as the domains or more, each domain gets: one, and the others by threads.
std::vector<size_t> Quotas(const std::vector<Set>& domains, size_t workers) {
  std::vector<size_t> quotas(domains.size(), 1);
  for (size_t given = domains.size(); given < workers; ++given) {
    size_t best = 0;  // the one with most threads for each of its workers, had it one more; the first of equals
    for (size_t i = 1; i < domains.size(); ++i) {
      const auto threads = [&](size_t d) { return static_cast<size_t>(domains[d].count()); };
      if (threads(i) * (quotas[best] + 1) > threads(best) * (quotas[i] + 1)) best = i;
    }
    ++quotas[best];
  }
  return quotas;
}

}  // namespace

struct Topology::Impl {
  hwloc_topology_t topology = nullptr;
  ~Impl() {
    if (topology) hwloc_topology_destroy(topology);
  }

  void Load(const char* xml, bool devices) {
    const bool ready =
        hwloc_topology_init(&topology) == 0 && (!xml || hwloc_topology_set_xml(topology, xml) == 0) &&
        (!devices || hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT) == 0) &&
        (xml || devices ||
         hwloc_topology_set_flags(
             topology, HWLOC_TOPOLOGY_FLAG_IS_THISSYSTEM | HWLOC_TOPOLOGY_FLAG_RESTRICT_TO_CPUBINDING) == 0) &&
        hwloc_topology_load(topology) == 0;
    if (!ready) {
      throw RuntimeError("cannot read the topology of " + std::string(xml ? xml : "this machine") + ": " +
                         std::strerror(errno));
    }
  }

  /// NUMA nodes that have cores, in their order; of several with the same cores (fast memory beside ordinary) one.
  std::vector<Set> Domains() const {
    std::vector<Set> domains;
    for (hwloc_obj_t node = nullptr; (node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node));) {
      Set cores(node->cpuset);
      if (!cores.empty() && std::find(domains.begin(), domains.end(), cores) == domains.end()) domains.push_back(cores);
    }
    return domains;
  }

  Set All() const { return Set(hwloc_get_root_obj(topology)->cpuset); }

  /// Cores local to a device, of those that may be used; empty: not known.
  Set NearDevice(const std::string& pci) const {
    Set near;
    if (hwloc_topology_is_thissystem(topology)) {
      std::ifstream file("/sys/bus/pci/devices/" + Lower(pci) + "/local_cpulist");
      std::string list;
      if (std::getline(file, list)) hwloc_bitmap_list_sscanf(near.get(), list.c_str());
    } else if (hwloc_obj_t device = hwloc_get_pcidev_by_busidstring(topology, pci.c_str())) {
      near.Add(hwloc_get_non_io_ancestor_obj(topology, device)->cpuset);
    }
    hwloc_bitmap_and(near.get(), near.get(), All().get());
    return near;
  }

  Binding Describe(const Set& cpus, const std::string& gpu) const {
    Set memory;
    hwloc_cpuset_to_nodeset(topology, cpus.get(), memory.get());
    return {cpus.Text(), memory.Text(), cpus.count(), gpu};
  }
};

Topology::Topology(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Topology::Topology(Topology&&) noexcept = default;
Topology::~Topology() = default;

Topology Topology::OfThisMachine() {
  auto impl = std::make_unique<Impl>();
  // Devices are looked up in /sys: hwloc would need a plugin that not every system has.
  impl->Load(nullptr, /*devices=*/std::getenv("HWLOC_XMLFILE") != nullptr);
  return Topology(std::move(impl));
}

Topology Topology::FromXml(const std::string& path) {
  auto impl = std::make_unique<Impl>();
  impl->Load(path.c_str(), /*devices=*/true);
  return Topology(std::move(impl));
}

std::string Topology::Text() const {
  const auto count = [&](hwloc_obj_type_t type, const char* one) {
    const int n = std::max(0, hwloc_get_nbobjs_by_type(impl_->topology, type));
    return std::to_string(n) + " " + one + (n == 1 ? "" : "s");
  };
  return count(HWLOC_OBJ_PACKAGE, "socket") + ", " + count(HWLOC_OBJ_NUMANODE, "NUMA node") + ", " +
         count(HWLOC_OBJ_CORE, "core") + ", " + count(HWLOC_OBJ_PU, "thread");
}

std::vector<Binding> Topology::ShareOut(const std::vector<std::string>& gpus) const {
  const std::vector<Set> domains = impl_->Domains();
  std::map<Set, std::vector<size_t>> near;  // workers by the cores near their GPUs
  bool known = true;
  for (size_t worker = 0; worker < gpus.size() && known; ++worker) {
    const Set cores = gpus[worker].empty() ? Set() : impl_->NearDevice(gpus[worker]);
    // What is near to everything is near to nothing.
    known = !cores.empty() && (domains.size() <= 1 || !(cores == impl_->All()));
    near[cores].push_back(worker);
  }
  std::vector<Binding> bindings(gpus.size());
  if (known) {
    for (const auto& [cores, workers] : near) {
      const std::vector<Set> shares = Cut(impl_->topology, cores, workers.size());
      for (size_t i = 0; i < workers.size(); ++i) bindings[workers[i]] = impl_->Describe(shares[i], gpus[workers[i]]);
    }
    return bindings;
  }
  size_t worker = 0;
  if (domains.size() <= gpus.size()) {
    const std::vector<size_t> quotas = Quotas(domains, gpus.size());
    for (size_t i = 0; i < domains.size(); ++i) {
      for (const Set& share : Cut(impl_->topology, domains[i], quotas[i]))
        bindings[worker++] = impl_->Describe(share, "");
    }
    return bindings;
  }
  for (; worker < gpus.size(); ++worker) {
    Set share;
    for (size_t i = worker * domains.size() / gpus.size(); i < (worker + 1) * domains.size() / gpus.size(); ++i)
      share.Add(domains[i].get());
    bindings[worker] = impl_->Describe(share, "");
  }
  return bindings;
}

std::string Topology::Bound(const Binding& binding, const std::function<void()>& body) const {
  hwloc_topology_t topology = impl_->topology;
  Set before, cpus, nodes;
  hwloc_bitmap_list_sscanf(cpus.get(), binding.cpus.c_str());
  hwloc_bitmap_list_sscanf(nodes.get(), binding.memory.c_str());
  std::string trouble;
  const auto note = [&](bool good, const char* what) {
    if (!good) trouble += (trouble.empty() ? "" : "; ") + std::string(what) + ": " + std::strerror(errno);
    return good;
  };
  const bool saved = note(hwloc_get_cpubind(topology, before.get(), HWLOC_CPUBIND_THREAD) == 0, "cores");
  if (saved) note(hwloc_set_cpubind(topology, cpus.get(), HWLOC_CPUBIND_THREAD) == 0, "cores");
  const int by_thread = HWLOC_MEMBIND_THREAD | HWLOC_MEMBIND_BYNODESET;
  // Without HWLOC_MEMBIND_STRICT: other memory is taken when this is full.
  const bool memory = note(hwloc_set_membind(topology, nodes.get(), HWLOC_MEMBIND_BIND, by_thread) == 0, "memory");
  const auto restore = [&] {
    if (saved) hwloc_set_cpubind(topology, before.get(), HWLOC_CPUBIND_THREAD);
    if (memory)
      hwloc_set_membind(topology, hwloc_topology_get_topology_nodeset(topology), HWLOC_MEMBIND_DEFAULT, by_thread);
  };
  try {
    body();
  } catch (...) {
    restore();
    throw;
  }
  restore();
  return trouble;
}

std::string BindingText(const Binding& binding) {
  return "CPUs " + binding.cpus + ", memory " + binding.memory +
         (binding.near.empty() ? "" : ", near GPU " + binding.near);
}

}  // namespace ds
