#include "test/docs/checker.h"

#include <fnmatch.h>
#include <sys/wait.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <regex>
#include <stdexcept>

#include "runtime/base/file.h"

namespace ds::docs_test {
namespace {

namespace fs = std::filesystem;

std::string Quoted(const std::string& text) {
  std::string quoted = "'";
  for (char c : text) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

/// --num_gpus is --num-gpus; --set=a=b is --set.
std::string FlagOf(const std::string& word) {
  std::string flag = word.substr(0, word.find('='));
  if (flag.starts_with("--")) std::replace(flag.begin() + 2, flag.end(), '_', '-');
  return flag;
}

bool IsFlag(const std::string& word) {
  return word.size() > 1 && word[0] == '-' &&
         (std::isalpha(static_cast<unsigned char>(word[1])) || (word[1] == '-' && word.size() > 2));
}

/// NAME, PATH, N, FILE...: a word in capitals stands for something.
bool IsPlaceholder(const std::string& word) {
  return std::any_of(word.begin(), word.end(), [](unsigned char c) { return std::isupper(c); }) &&
         std::none_of(word.begin(), word.end(), [](unsigned char c) { return std::islower(c); });
}

/// Arguments before `--`, which ends ds-launch's own.
std::vector<std::string> Own(const std::vector<std::string>& words) {
  return {words.begin(), std::find(words.begin(), words.end(), "--")};
}

}  // namespace

Ran Bash(const std::string& line, const std::string& folder) {
  const std::string command = "cd " + Quoted(folder) + " && exec bash -c " + Quoted(line) + " 2>&1 < /dev/null";
  FILE* pipe = ::popen(command.c_str(), "r");
  if (!pipe) throw std::runtime_error("cannot start a shell");
  Ran ran;
  char buffer[4096];
  for (size_t n; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) ran.output.append(buffer, n);
  const int status = ::pclose(pipe);
  ran.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return ran;
}

Checker::Checker(std::string source, std::string bin, std::string scratch)
    : source_(std::move(source)),
      bin_(std::move(bin)),
      scratch_(std::move(scratch)),
      keys_(ReadFile(source_ + "/docs/job-spec.md")) {}

std::vector<std::string> Checker::Problems(const Command& command, bool placeholders) {
  problems_.clear();
  const std::string& word = command.words[0];
  const std::string name = fs::path(word).filename();
  if (word.starts_with("build/bin/test-"))
    Test(command, name);
  else if (word.starts_with("build/bin/") || word.starts_with("ds-"))
    Program(command, name, placeholders);
  else if (word.starts_with("scripts/") || word.starts_with(".ci/"))
    Script(command);
  else if (word == "git")
    Git(command);
  else if (word == "cmake")
    Cmake(command);
  else if (word == "ctest")
    Ctest(command, 1);
  else if (Bash("command -v " + Quoted(word), source_).code != 0)
    Add("no program " + word + ": if this is no command, say what it is by <!-- test: KIND --> before the block");
  Files(command);
  for (const std::string& assignment : command.assignments) {
    const std::string variable = assignment.substr(0, assignment.find('='));
    if (Bash("grep -rq \"\\\"" + variable + "\\\"\" runtime launcher agent test || grep -rqw " + variable + " scripts",
             source_)
            .code != 0)
      Add("nothing reads the variable " + variable);
  }
  std::vector<std::string> told;
  for (const std::string& problem : problems_) told.push_back(command.where + ": " + command.text + ": " + problem);
  return told;
}

void Checker::Program(const Command& command, const std::string& name, bool placeholders) {
  if (!fs::exists(bin_ + "/" + name)) return Add("no program " + name);
  std::string program = bin_ + "/" + name;
  const std::vector<std::string> own = Own(command.words);
  if ((name == "ds-convert" || name == "ds-bench") && own.size() > 1 && !IsFlag(own[1])) {
    const std::string of_all = Bash(program + " --help", scratch_).output;
    if (own[1] != "...") program += " " + own[1];
    const Ran help = Bash(program + " --help", scratch_);  // of an unknown command: that of all
    if (own[1] != "..." && (help.code != 0 || help.output == of_all))
      return Add("no command " + own[1] + " of " + name);
  }
  for (const std::string& word : own)
    if (IsFlag(word) && !FlagsOf(program).contains(FlagOf(word))) Add("no flag " + FlagOf(word) + " of " + name);
  Keys(command);
  // What is no placeholder can be looked at by the program itself, where the files that it names are there.
  const bool job = own.size() > 1 && fs::exists(scratch_ + "/" + own[1]);
  if (name != "ds-launch" || placeholders || !job || !problems_.empty() || !HasFiles(own)) return;
  std::string line;
  for (const std::string& word : own) line += Quoted(word) + " ";
  const Ran ran = Bash(line + "--dry-run --resume never", scratch_);
  if (ran.code != 0) Add("its dry run says: " + ran.output);
}

/// Whether the files that a job's `--set KEY=PATH` name are there: those that an earlier command makes are not.
bool Checker::HasFiles(const std::vector<std::string>& words) const {
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    const std::string value = words[i + 1].substr(words[i + 1].find('=') + 1);
    if (words[i] != "--set" || value.find('/') == std::string::npos) continue;
    if (!fs::exists(fs::path(scratch_ + "/" + words[1]).parent_path() / value)) return false;
  }
  return true;
}

void Checker::Keys(const Command& command) {
  for (size_t i = 0; i + 1 < command.words.size(); ++i) {
    if (command.words[i] != "--set") continue;
    const std::string& setting = command.words[i + 1];
    std::string key = setting.substr(0, setting.find('='));
    if (IsPlaceholder(setting)) continue;
    const std::string deepspeed = "deepspeed.";
    if (key.starts_with(deepspeed)) key = key.substr(deepspeed.size());
    if (keys_.find("`" + key + "`") == std::string::npos) Add("docs/job-spec.md has no key " + key);
  }
}

void Checker::Script(const Command& command) {
  const std::string& script = command.words[0];
  const fs::path path = source_ + "/" + script;
  if (!fs::exists(path)) return Add("no script " + script);
  if ((fs::status(path).permissions() & fs::perms::owner_exec) == fs::perms::none) Add(script + " is not executable");
  if (script == "scripts/test.sh") return Ctest(command, 1);
  const std::string text = ReadFile(path);
  for (size_t i = 1; i < command.words.size(); ++i)
    if (IsFlag(command.words[i]) && text.find(FlagOf(command.words[i])) == std::string::npos)
      Add("no flag " + FlagOf(command.words[i]) + " of " + script);
  if (script != "scripts/build.sh") return;
  const std::string targets = fs::exists(bin_ + "/../build.ninja") ? ReadFile(bin_ + "/../build.ninja") : "";
  for (size_t i = 1; i < command.words.size(); ++i)
    if (!targets.empty() && !IsPlaceholder(command.words[i]) &&
        targets.find("build " + command.words[i] + ": phony") == std::string::npos)
      Add("no target " + command.words[i]);
}

/// A test program, and that its filter has a test.
void Checker::Test(const Command& command, const std::string& name) {
  if (!fs::exists(bin_ + "/" + name)) {
    std::string folder = name.substr(std::string("test-").size());
    std::string nested = folder;
    if (const size_t dash = nested.find('-'); dash != std::string::npos) nested[dash] = '/';
    if (!Exists("test/" + folder) && !Exists("test/" + nested)) Add("no tests " + name);
    return;  // it is not built here
  }
  if (command.words.size() < 2 || IsFlag(command.words[1])) return;
  const Ran ran = Bash(Quoted(bin_ + "/" + name) + " --list-tests " + Quoted(command.words[1]), scratch_);
  if (std::regex_search(ran.output, std::regex("(^|\\n)0 (matching )?test cases"))) Add("no test " + command.words[1]);
}

void Checker::Ctest(const Command& command, size_t first) {
  const std::string build = fs::path(bin_).parent_path();
  for (size_t i = first; i + 1 < command.words.size(); ++i) {
    const std::string &flag = command.words[i], &value = command.words[i + 1];
    if (flag == "--test-dir" || (flag != "-L" && flag != "-LE" && flag != "-R")) continue;
    if (IsPlaceholder(value)) continue;
    const Ran ran = Bash("ctest --test-dir " + Quoted(build) + " -N " + flag + " " + Quoted(value), scratch_);
    if (ran.output.find("Total Tests: 0") == std::string::npos) continue;
    // A build with sanitizers leaves some out.
    if (ReadFile(source_ + "/test/CMakeLists.txt").find(value) == std::string::npos)
      Add("no tests for " + flag + " " + value);
  }
}

/// Commits must be in the history, and the paths in the commit. Without the history (a tarball, a shallow clone) there
/// is nothing to look at.
void Checker::Git(const Command& command) {
  const Ran history = Bash("git rev-parse --is-shallow-repository", source_);
  if (history.code != 0 || history.output != "false\n" || command.words.size() < 2 || command.words[1] != "show")
    return;
  std::string line, commit;
  for (const std::string& word : command.words) line += Quoted(word) + " ";
  for (const std::string& word : command.words)
    if (std::regex_match(word, std::regex("[0-9a-f]{7,40}"))) commit = word;
  if (commit.empty()) return;
  if (Bash("git merge-base --is-ancestor " + commit + " HEAD", source_).code != 0)
    return Add("commit " + commit + " is not in the history of this one");
  if (Bash(line, source_).output.find('|') == std::string::npos) Add("shows no file");
}

void Checker::Cmake(const Command& command) {
  const std::string presets = ReadFile(source_ + "/CMakePresets.json");
  for (size_t i = 1; i + 1 < command.words.size(); ++i) {
    const std::string& value = command.words[i + 1];
    if (command.words[i] == "--preset" && presets.find("\"name\": \"" + value + "\"") == std::string::npos)
      Add("no preset " + value);
    if (command.words[i] == "--build" && value != "build" &&
        presets.find("${sourceDir}/" + value + "\"") == std::string::npos)
      Add("no preset builds into " + value);
  }
}

/// Words that name something in a folder of the repository.
void Checker::Files(const Command& command) {
  for (const std::string& word : command.words) {
    const size_t slash = word.find('/');
    if (slash == std::string::npos || slash == 0 || IsPlaceholder(word.substr(slash + 1)) || word[0] == '-') continue;
    static const std::set<std::string> folders = {"agent", "cmake",   "configs", "docs", "kernels", "launcher",
                                                  "proto", "runtime", "scripts", "test", ".ci"};
    if (folders.contains(word.substr(0, slash)) && !Exists(word)) Add("no file " + word);
  }
}

bool Checker::Exists(const std::string& path) const {
  if (path.find('*') == std::string::npos) return fs::exists(source_ + "/" + path);
  const fs::path folder = fs::path(source_ + "/" + path).parent_path();
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored))
    if (::fnmatch(fs::path(path).filename().c_str(), entry.path().filename().c_str(), 0) == 0) return true;
  return false;
}

const std::set<std::string>& Checker::FlagsOf(const std::string& program) {
  const auto [found, fresh] = flags_.try_emplace(program);
  if (!fresh) return found->second;
  const std::string help = Bash(program + " --help", scratch_).output;
  const std::regex flag("(^|[\\s,/\\[])(--?[A-Za-z][A-Za-z0-9-]*)");
  for (std::sregex_iterator it(help.begin(), help.end(), flag), end; it != end; ++it) found->second.insert((*it)[2]);
  found->second.insert("--help");
  return found->second;
}

}  // namespace ds::docs_test
