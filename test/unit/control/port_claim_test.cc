// MASTER_PORT is kept from others.
#include "agent/port_claim.h"

#include <memory>
#include <set>
#include <vector>

#include "test/catch.h"
#include "test/ports.h"

namespace ds {

using test::CanBind;

TEST_CASE("Until workers start nobody can take the port, from then on they can") {
  PortClaim claim;
  CHECK(!CanBind(claim.port(), false));
  CHECK(!CanBind(claim.port(), true));
  claim.LetListen();
  CHECK(CanBind(claim.port(), false));
}

TEST_CASE("Agents of other jobs keep off the port for as long as the job lasts") {
  std::vector<std::unique_ptr<PortClaim>> claims;
  std::set<uint16_t> ports;
  for (int i = 0; i < 200; ++i) {
    claims.push_back(std::make_unique<PortClaim>());
    claims.back()->LetListen();
    ports.insert(claims.back()->port());
  }
  CHECK(ports.size() == 200);
}

}  // namespace ds
