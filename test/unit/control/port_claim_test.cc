// MASTER_PORT is kept from others.
#include "agent/port_claim.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <set>
#include <vector>

#include "test/catch.h"

namespace ds {
namespace {

/// Whether a program could bind the port on every address, with or without SO_REUSEADDR.
bool CanBind(uint16_t port, bool reuse) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  if (reuse) ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  const bool bound = ::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  ::close(fd);
  return bound;
}

}  // namespace

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
