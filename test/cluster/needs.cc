#include "test/cluster/needs.h"

#include <unistd.h>

#include <cstdlib>
#include <sstream>

#include "test/catch.h"

namespace ds::test {

bool Installed(const std::string& program) {
  std::istringstream path(std::string(std::getenv("PATH") ? std::getenv("PATH") : "") + ":/usr/sbin:/sbin");
  for (std::string folder; std::getline(path, folder, ':');) {
    if (::access((folder + "/" + program).c_str(), X_OK) == 0) return true;
  }
  const char* ci = std::getenv("CI");
  if (ci && std::string(ci) == "true") FAIL(program << " is not installed: scripts/setup.sh --tests");
  WARN("skipped: " << program << " is not installed");
  return false;
}

}  // namespace ds::test
