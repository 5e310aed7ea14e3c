// The blocks of a Markdown file that show what is typed or printed: fenced, or indented by four spaces.
//
// A comment on a line of its own before a block says what it is; without one, a block in `yaml` is a job, and any other
// is a list of commands:
//
//     <!-- test: KIND -->
//
//     check      commands of which programs, flags, files, keys and tests must exist (the default)
//     run        commands that are also run, in a copy of the tree, after those of the blocks before it in the file
//     synopsis   commands with placeholders; what follows two spaces is explanation
//     hostfile   read as a hostfile
//     job        read as a job spec by a dry run
//     output     what a program prints, how files lie, arithmetic: not checked
#pragma once

#include <string>
#include <vector>

namespace ds::docs_test {

struct Block {
  std::string file;
  int line = 0;  ///< of the first line of text, from 1
  std::string kind;
  std::vector<std::string> text;  ///< without the indentation

  std::string where() const { return file + ":" + std::to_string(line); }
};

/// `name` is for messages. Tables, lists' continuation lines and inline code are no blocks.
std::vector<Block> Blocks(const std::string& markdown, const std::string& name);

/// Code spans of running text (`like this`), each as a block of one line, that begin with a program of this project,
/// a script of it, or a test.
std::vector<Block> CommandSpans(const std::string& markdown, const std::string& name);

}  // namespace ds::docs_test
