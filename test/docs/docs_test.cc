// Promise: what the documentation tells to type can be typed. Every block of commands names programs, flags, files,
// keys, tests and commits that exist; blocks marked so are run in the order in which they stand.
#include <filesystem>
#include <fstream>

#include "runtime/base/file.h"
#include "runtime/job/hostfile.h"
#include "test/catch.h"
#include "test/docs/checker.h"
#include "test/fault/launched_job.h"

namespace ds::docs_test {
namespace {

namespace fs = std::filesystem;

const std::string kSource = DS_SOURCE_DIR, kBin = DS_BIN_DIR;

std::vector<std::string> Documents() {
  std::vector<std::string> documents = {"README.md", "CONTRIBUTING.md"};
  for (const auto& entry : fs::directory_iterator(kSource + "/docs"))
    if (entry.path().extension() == ".md") documents.push_back("docs/" + entry.path().filename().string());
  std::sort(documents.begin(), documents.end());
  return documents;
}

/// A copy of what commands name: job files and scripts, programs under build/bin, and a text in place of the data that
/// the quick start prepares.
class Scratch {
 public:
  Scratch() {
    for (const char* folder : {"configs", "scripts"})
      fs::copy(kSource + "/" + folder, path(folder), fs::copy_options::recursive);
    fs::create_directories(path("build"));
    fs::create_directory_symlink(kBin, path("build/bin"));
    fs::create_directories(path("data/kjv"));
    const std::string text = ReadFile(kSource + "/LICENSE");
    for (const char* file : {"data/kjv/train.txt", "data/kjv/validation.txt", "text.txt"}) Write(file, text);
    // The README's own data too: a dry run looks for it.
    for (const char* output : {"kjv/train", "kjv/validation", "mine-train", "mine-validation"})
      Must("build/bin/ds-convert data --input text.txt --output data/" + std::string(output) + ".tok");
  }

  std::string path(const std::string& name) const { return folder_.path() + "/" + name; }
  const std::string& folder() const { return folder_.path(); }
  void Write(const std::string& name, const std::string& text) const { std::ofstream(path(name)) << text; }
  void Must(const std::string& line) const {
    const Ran ran = Bash(line, folder());
    INFO(line << "\n" << ran.output);
    REQUIRE(ran.code == 0);
  }

 private:
  test::TemporaryFolder folder_;
};

std::string Joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

std::vector<std::string> ProblemsOf(Checker& checker, const Block& block) {
  std::vector<std::string> problems;
  const bool synopsis = block.kind == "synopsis";
  for (const Command& command : synopsis ? SynopsisOf(block) : CommandsOf(block)) {
    const std::vector<std::string> more = checker.Problems(command, synopsis);
    problems.insert(problems.end(), more.begin(), more.end());
  }
  return problems;
}

TEST_CASE("every command of the documentation names what exists") {
  const Scratch scratch;
  Checker checker(kSource, kBin, scratch.folder());
  for (const std::string& document : Documents()) {
    const std::string text = ReadFile(kSource + "/" + document);
    std::vector<Block> blocks = Blocks(text, document);
    const std::vector<Block> spans = CommandSpans(text, document);
    blocks.insert(blocks.end(), spans.begin(), spans.end());
    for (const Block& block : blocks) {
      CAPTURE(block.where(), block.kind);
      if (block.kind == "hostfile") {
        CHECK_NOTHROW(ParseHostfile(Joined(block.text), block.where()));
      } else if (block.kind == "job") {
        scratch.Write("job.yaml", Joined(block.text));
        scratch.Must("build/bin/ds-launch job.yaml --dry-run");
      } else if (block.kind == "check" || block.kind == "run" || block.kind == "synopsis") {
        CHECK(Joined(ProblemsOf(checker, block)) == "");
      } else {
        CHECK(block.kind == "output");
      }
    }
  }
}

TEST_CASE("the commands that are marked so run, in their order") {
  for (const std::string& document : Documents()) {
    std::optional<Scratch> scratch;
    for (const Block& block : Blocks(ReadFile(kSource + "/" + document), document)) {
      if (block.kind != "run") continue;
      if (!scratch) scratch.emplace();
      CAPTURE(block.where());
      scratch->Must("set -euo pipefail\n" + Joined(block.text));
    }
  }
}

TEST_CASE("what a command names wrongly is noticed") {
  const Scratch scratch;
  Checker checker(kSource, kBin, scratch.folder());
  const std::pair<const char*, const char*> wrong[] = {
      {"ds-launch configs/quickstart.yaml --hostfiles hosts", "no flag --hostfiles of ds-launch"},
      {"build/bin/ds-lunch configs/quickstart.yaml", "no program ds-lunch"},
      {"ds-launch configs/none.yaml", "no file configs/none.yaml"},
      {"ds-launch configs/quickstart.yaml --set training.stepps=3", "no key training.stepps"},
      {"ds-launch configs/quickstart.yaml --set training.steps=x", "its dry run says"},
      {"build/bin/ds-convert data --inputs a --output b", "no flag --inputs of ds-convert"},
      {"build/bin/ds-convert dada --input a", "no command dada"},
      {"scripts/none.sh", "no script scripts/none.sh"},
      {"scripts/quickstart.sh --prepared", "no flag --prepared"},
      {"scripts/build.sh ds-lunch", "no target ds-lunch"},
      {"scripts/test.sh -L none", "no tests for -L none"},
      {"cmake --preset none", "no preset none"},
      {"build/bin/test-docs \"no such test\"", "no test no such test"},
      {"build/bin/test-none", "no tests test-none"},
      {"no-such-program", "no program no-such-program"},
      {"DS_NO_SUCH=1 build/bin/test-docs", "nothing reads the variable DS_NO_SUCH"},
      {"mkdir -p a && ds-report --jason | cat", "no flag --jason of ds-report"},
  };
  for (const auto& [line, problem] : wrong) {
    CAPTURE(line);
    const std::vector<std::string> problems = ProblemsOf(checker, Block{"x.md", 1, "check", {line}});
    REQUIRE_FALSE(problems.empty());
    CHECK(problems[0].find(problem) != std::string::npos);
  }
  CHECK_FALSE(ProblemsOf(checker, Block{"x.md", 1, "synopsis", {"ds-launch JOB [-i/--includes F]  text"}}).empty());
  CHECK(ProblemsOf(checker, Block{"x.md", 1, "synopsis", {"ds-launch JOB [-i/--include F]  --text"}}).empty());
}

TEST_CASE("blocks are found with their kinds, and commands with what belongs to them") {
  const std::string text =
      "# A\n\nText `scripts/a.sh --b` and `ds-launch`.\n\n    one \\\n      two  # three\n    cat > f <<'END'\n"
      "    four --five\n    END\n\n    A=1 six | seven\n\n<!-- test: output -->\n\n    eight\n\n```yaml\nnine: 9\n```\n"
      "- item\n    goes on\n";
  const std::vector<Block> blocks = Blocks(text, "a.md");
  REQUIRE(blocks.size() == 3);
  CHECK(blocks[0].kind == "check");
  CHECK(blocks[0].line == 5);
  CHECK(blocks[1].kind == "output");
  CHECK(blocks[2].kind == "job");
  CHECK(blocks[2].text == std::vector<std::string>{"nine: 9"});
  const std::vector<Command> commands = CommandsOf(blocks[0]);
  REQUIRE(commands.size() == 4);
  CHECK(commands[0].words == std::vector<std::string>{"one", "two"});
  CHECK(commands[1].words == std::vector<std::string>{"cat"});
  CHECK(commands[2].assignments == std::vector<std::string>{"A=1"});
  CHECK(commands[2].words == std::vector<std::string>{"six"});
  CHECK(commands[3].words == std::vector<std::string>{"seven"});
  CHECK(commands[3].where == "a.md:11");
  const std::vector<Block> spans = CommandSpans(text, "a.md");
  REQUIRE(spans.size() == 1);
  CHECK(spans[0].text[0] == "scripts/a.sh --b");
}

}  // namespace
}  // namespace ds::docs_test
