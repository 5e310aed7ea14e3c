// What NCCL is told through the environment: the interface of the address that the job chose, and nothing that the user
// has set.
#include "runtime/comm/nccl_environment.h"

#include <cstdlib>

#include "runtime/base/error.h"
#include "runtime/comm/nccl/nccl_communicator.h"
#include "test/catch.h"

namespace ds::test {
namespace {

std::string ValueOf(const std::vector<EnvironmentVariable>& variables, const std::string& name) {
  for (const auto& variable : variables) {
    if (variable.name == name) return variable.value;
  }
  return "absent";
}

}  // namespace

TEST_CASE("an address gives the name of its interface, any loopback address that of the loopback") {
  CHECK(InterfaceOf("127.0.0.1") == "lo");
  CHECK(InterfaceOf("127.0.0.7") == "lo");
  REQUIRE_THROWS_AS(InterfaceOf("192.0.2.1"), RuntimeError);  // for documentation: nobody has it
  REQUIRE_THROWS_AS(InterfaceOf("2001:db8::1"), RuntimeError);
  REQUIRE_THROWS_AS(InterfaceOf("node7"), RuntimeError);
}

TEST_CASE("NCCL is told interface and address family, and the algorithm when it is pinned") {
  const auto pinned = NcclEnvironment("127.0.0.1", true), free = NcclEnvironment("127.0.0.1", false);
  CHECK(ValueOf(pinned, "NCCL_SOCKET_IFNAME") == "=lo");
  CHECK(ValueOf(pinned, "NCCL_SOCKET_FAMILY") == "AF_INET");
  CHECK(ValueOf(pinned, "NCCL_ALGO") == "Ring");
  CHECK(ValueOf(pinned, "NCCL_PROTO") == "Simple");
  CHECK(ValueOf(free, "NCCL_ALGO") == "absent");
  CHECK(ValueOf(free, "NCCL_NVLS_ENABLE") == "0");
}

TEST_CASE("a program without GPU code links without NCCL, and can tell") { CHECK(&NcclFactory == nullptr); }

TEST_CASE("what the user set stays, and is said to be theirs") {
  setenv("DS_TEST_THEIRS", "Tree", 1);
  unsetenv("DS_TEST_OURS");
  CHECK(SetEnvironment({{"DS_TEST_THEIRS", "Ring"}, {"DS_TEST_OURS", "0"}}) ==
        "DS_TEST_THEIRS=Tree (set by the user), DS_TEST_OURS=0");
  CHECK(std::string(std::getenv("DS_TEST_THEIRS")) == "Tree");
  CHECK(std::string(std::getenv("DS_TEST_OURS")) == "0");
}

}  // namespace ds::test
