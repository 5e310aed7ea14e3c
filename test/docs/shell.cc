#include "test/docs/shell.h"

#include <algorithm>
#include <cctype>

namespace ds::docs_test {
namespace {

bool IsAssignment(const std::string& word) {
  const size_t equals = word.find('=');
  return equals != 0 && equals != std::string::npos &&
         std::all_of(word.begin(), word.begin() + static_cast<std::ptrdiff_t>(equals),
                     [](unsigned char c) { return std::isupper(c) || std::isdigit(c) || c == '_'; });
}

void Add(std::vector<Command>& commands, const std::string& where, const std::string& text,
         std::vector<std::string>& words) {
  Command command{where, text, {}, {}};
  for (std::string& word : words)
    (command.words.empty() && IsAssignment(word) ? command.assignments : command.words).push_back(std::move(word));
  if (!command.words.empty()) commands.push_back(std::move(command));
  words.clear();
}

/// Splits one line at its operators into commands of words. Returns the word that ends a here-document; empty: none.
std::string Split(const std::string& line, const std::string& where, std::vector<Command>& commands) {
  std::vector<std::string> words;
  std::string word, end_of_document;
  bool in_word = false, document = false, skip = false;
  char quote = 0;
  auto end_word = [&] {
    if (in_word) {
      if (document)
        end_of_document = word;
      else if (!skip)  // a file that output goes to
        words.push_back(word);
      document = skip = false;
    }
    word.clear();
    in_word = false;
  };
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quote) {
      if (c == quote)
        quote = 0;
      else
        word += c;
    } else if (c == '\'' || c == '"') {
      quote = c;
      in_word = true;
    } else if (c == '#' && !in_word) {
      break;
    } else if (c == ' ') {
      end_word();
    } else if (c == '<' && line.compare(i, 2, "<<") == 0) {
      end_word();
      document = true;
      ++i;
    } else if (c == '>') {
      end_word();
      skip = true;
      if (line.compare(i, 2, ">>") == 0) ++i;
    } else if (c == '|' || c == ';' || c == '&') {
      end_word();
      Add(commands, where, line, words);
    } else {
      word += c;
      in_word = true;
    }
  }
  end_word();
  Add(commands, where, line, words);
  return end_of_document;
}

}  // namespace

std::vector<Command> CommandsOf(const Block& block) {
  std::vector<Command> commands;
  for (size_t i = 0; i < block.text.size(); ++i) {
    const std::string where = block.file + ":" + std::to_string(block.line + static_cast<int>(i));
    std::string line = block.text[i];
    while (line.ends_with("\\") && i + 1 < block.text.size()) line = line.substr(0, line.size() - 1) + block.text[++i];
    const std::string end = Split(line, where, commands);
    if (end.empty()) continue;
    while (i + 1 < block.text.size() && block.text[++i] != end) {
    }
  }
  return commands;
}

std::vector<Command> SynopsisOf(const Block& block) {
  std::vector<Command> commands;
  for (size_t i = 0; i < block.text.size(); ++i) {
    std::string line = block.text[i];
    const bool goes_on = line.starts_with(" ");
    line = line.substr(std::min(line.size(), line.find_first_not_of(' ')));
    line = line.substr(0, line.find("  "));
    if (line.empty()) continue;
    std::string text;
    for (char c : line) text += c == '[' || c == ']' || c == '|' || c == ',' ? ' ' : c;
    // `-i/--include` is two names of one flag.
    for (size_t at = text.find("/--"); at != std::string::npos; at = text.find("/--")) text[at] = ' ';
    std::vector<Command> more;
    Split(text, block.file + ":" + std::to_string(block.line + static_cast<int>(i)), more);
    for (Command& command : more) {
      command.text = line;
      if (!goes_on || commands.empty()) {
        commands.push_back(std::move(command));
        continue;
      }
      commands.back().words.insert(commands.back().words.end(), command.words.begin(), command.words.end());
    }
  }
  return commands;
}

}  // namespace ds::docs_test
