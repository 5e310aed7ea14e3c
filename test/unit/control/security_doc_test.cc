// docs/security.md names a test for each threat: each must exist, by exactly this name.
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "runtime/base/file.h"
#include "test/catch.h"

namespace ds {
namespace {

namespace fs = std::filesystem;

/// The names of all test cases in the tree.
std::set<std::string> TestNames() {
  std::set<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(std::string(DS_SOURCE_DIR) + "/test")) {
    if (entry.path().extension() != ".cc") continue;
    const std::string text = ReadFile(entry.path()), begin = "TEST_CASE(\"";
    for (size_t at = 0; (at = text.find(begin, at)) != std::string::npos;) {
      at += begin.size();
      std::string name;
      // A literal may go on in the next line: "..." "..."
      for (bool inside = true; at < text.size(); ++at) {
        const char c = text[at];
        if (c == '"') {
          inside = !inside;
        } else if (inside) {
          name += c;
        } else if (c != ' ' && c != '\n') {
          break;
        }
      }
      names.insert(name);
    }
  }
  return names;
}

}  // namespace

TEST_CASE("docs/security.md names tests that exist, one at least for each threat") {
  const std::set<std::string> names = TestNames();
  REQUIRE(names.size() > 500);
  std::istringstream text(ReadFile(std::string(DS_SOURCE_DIR) + "/docs/security.md"));
  int threats = 0;
  bool in_table = false;
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with("| threat |")) in_table = true;
    if (!line.starts_with("|")) in_table = false;
    if (!in_table || line.starts_with("| threat |") || line.starts_with("| ---")) continue;
    INFO(line);
    const size_t end = line.rfind('|'), begin = line.rfind("| ", end - 1);
    std::string cell = line.substr(begin + 2, end - begin - 2);
    int tests = 0;
    for (size_t open; (open = cell.find('`')) != std::string::npos; ++tests) {
      const size_t close = cell.find('`', open + 1);
      REQUIRE(close != std::string::npos);
      const std::string name = cell.substr(open + 1, close - open - 1);
      INFO(name);
      CHECK(names.contains(name));
      cell.erase(0, close + 1);
    }
    CHECK(tests > 0);
    ++threats;
  }
  CHECK(threats >= 30);
}

}  // namespace ds
