// Whether what a command names is there: programs, flags, scripts, files, keys of jobs, tests, labels, commits.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "test/docs/shell.h"

namespace ds::docs_test {

struct Ran {
  int code = 0;
  std::string output;  ///< both streams
};
/// Runs a line of bash in `folder`, /dev/null as standard input.
Ran Bash(const std::string& line, const std::string& folder);

class Checker {
 public:
  /// `source`: the repository. `bin`: where its programs were built. `scratch`: a folder to run programs in, with the
  /// files that commands name.
  Checker(std::string source, std::string bin, std::string scratch);

  /// What is wrong with a command, a line each: empty where nothing is. `placeholders`: words may stand for others, so
  /// that flags alone can be looked at.
  std::vector<std::string> Problems(const Command& command, bool placeholders);

 private:
  void Program(const Command& command, const std::string& name, bool placeholders);
  void Script(const Command& command);
  void Test(const Command& command, const std::string& name);
  void Ctest(const Command& command, size_t first);
  void Git(const Command& command);
  void Cmake(const Command& command);
  void Files(const Command& command);
  void Keys(const Command& command);
  void Add(const std::string& problem) { problems_.push_back(problem); }

  /// The flags that `program` (a command line) names in its --help.
  const std::set<std::string>& FlagsOf(const std::string& program);
  bool HasFiles(const std::vector<std::string>& words) const;
  bool Exists(const std::string& path) const;  ///< in the repository; '*' stands for anything in a name

  std::string source_, bin_, scratch_, keys_;
  std::map<std::string, std::set<std::string>> flags_;
  std::vector<std::string> problems_;
};

}  // namespace ds::docs_test
