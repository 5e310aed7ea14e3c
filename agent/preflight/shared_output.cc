// Whether this node sees the launcher's output folder: the launcher wrote a token there.
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "agent/preflight/preflight.h"

namespace ds {

namespace pb = ::deepshard::v1;

void LookAtSharedOutput(const pb::Bootstrap& bootstrap, pb::NodeFacts& found, pb::NodeFacts::Check& check) {
  const std::string& path = bootstrap.token_path();
  if (path.empty()) return;
  std::ifstream file(path, std::ios::binary);
  const std::string token((std::istreambuf_iterator<char>(file)), {});
  found.set_token_seen(file && token == bootstrap.token());
  const std::string folder = std::filesystem::path(path).parent_path().string();
  if (found.token_seen() && ::access(folder.c_str(), W_OK) != 0) {
    check.set_passed(false);
    check.set_text("the output folder " + folder + " cannot be written to: " + std::strerror(errno));
  }
}

}  // namespace ds
