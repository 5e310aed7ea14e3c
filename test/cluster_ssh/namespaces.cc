#include "test/cluster_ssh/namespaces.h"

#include <unistd.h>

#include "test/catch.h"

namespace ds::test {

std::unique_ptr<Namespaces> Namespaces::Make() {
  std::unique_ptr<Namespaces> made(new Namespaces("ds" + std::to_string(::getpid())));
  if (made->Build()) return made;
  WARN("skipped: this machine allows no network namespaces (root, iproute2 and CAP_NET_ADMIN are needed)");
  return nullptr;
}

Namespaces::~Namespaces() {
  for (const char* which : {"launcher", "node0", "node1", "switch"}) Ip({"netns", "del", Name(which)});
}

bool Namespaces::Ip(std::vector<std::string> arguments) const {
  arguments.insert(arguments.begin(), "ip");
  try {
    return RunProgram(arguments) == 0;
  } catch (const std::exception&) {
    return false;  // there is no `ip`
  }
}

bool Namespaces::In(const std::string& which, std::vector<std::string> arguments) const {
  const std::vector<std::string> in = {"-n", Name(which)};
  arguments.insert(arguments.begin(), in.begin(), in.end());
  return Ip(arguments);
}

bool Namespaces::Build() const {
  if (!Ip({"netns", "add", Name("switch")})) return false;
  bool good = true;
  const auto must = [&](bool done) { good = good && done; };
  for (const std::string network : {"eth0", "ib0"}) {
    must(In("switch", {"link", "add", "sw-" + network, "type", "bridge"}));
    must(In("switch", {"link", "set", "sw-" + network, "up"}));
  }
  int last = 1;
  for (const std::string which : {"launcher", "node0", "node1"}) {
    must(Ip({"netns", "add", Name(which)}));
    must(In(which, {"link", "set", "lo", "up"}));
    for (const std::string network : {"eth0", "ib0"}) {
      const std::string port = which + "-" + network.substr(0, 1), subnet = network == "eth0" ? "10.77.0." : "10.78.0.";
      must(In("switch", {"link", "add", port, "type", "veth", "peer", "name", network, "netns", Name(which)}));
      must(In("switch", {"link", "set", port, "master", "sw-" + network, "up"}));
      must(In(which, {"addr", "add", subnet + std::to_string(last) + "/24", "dev", network}));
      must(In(which, {"link", "set", network, "up"}));
    }
    ++last;
  }
  REQUIRE(good);  // where one namespace can be made, the rest can
  return true;
}

void Namespaces::SetLink(int node, bool up) const {
  for (const char* network : {"-e", "-i"}) {
    REQUIRE(In("switch", {"link", "set", "node" + std::to_string(node) + network, up ? "up" : "down"}));
  }
}

void Namespaces::SwallowTowards(int node) const {
  REQUIRE(In("launcher", {"route", "add", "blackhole", Address(node) + "/32"}));
}

void Namespaces::SwallowFrom(int node) const {
  REQUIRE(In("node" + std::to_string(node), {"route", "add", "blackhole", "10.77.0.1/32"}));
}

}  // namespace ds::test
