// As much of the shell as documentation uses: words, quotes, comments, lines that go on, here-documents, `&&`, `|`, `;`
// and assignments before a command. Nothing is expanded.
#pragma once

#include <string>
#include <vector>

#include "test/docs/markdown.h"

namespace ds::docs_test {

struct Command {
  std::string where;                     ///< file:line
  std::string text;                      ///< as it is written, on one line
  std::vector<std::string> assignments;  ///< NAME=VALUE before the program
  std::vector<std::string> words;        ///< the program and its arguments; not empty
};

/// The commands of a block of commands.
std::vector<Command> CommandsOf(const Block& block);

/// The commands of a synopsis: words without brackets, alternatives and explanations. A line that begins with a blank
/// goes on with the one before.
std::vector<Command> SynopsisOf(const Block& block);

}  // namespace ds::docs_test
