// DeepSpeed's `.deepspeed_env`: variables for the workers, one a line.
//
//   LINE  = nothing | # comment | [export ]NAME=VALUE
//   NAME  has no blanks, quotes, '=', '#', '\' or control characters
//   VALUE = 'BYTES'    as they stand
//         | "BYTES"    \" \\ \$ and \` stand for the second character; other backslashes for themselves
//         | BYTES      to the end of the line, as they stand, but for blanks at both ends
//
// Nothing is expanded, and no shell reads it. Lines end with LF or CRLF, the last one with or without; a byte-order
// mark is passed over. After a quoted value only a comment may follow; in a value without quotes " #" is an error,
// since it may be meant either way. A name may be given again: the later one wins.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/value.h"

namespace ds {

struct EnvVariable {
  std::string name, value;
  Position where;  ///< of the name
  bool operator==(const EnvVariable& other) const { return name == other.name && value == other.value; }
};

/// In the order written. `file` stands for the file in messages. Throws UsageError, a line for each error
/// ("file:line:column: ..."), which shows names and never values: they may be secrets.
std::vector<EnvVariable> ParseEnvFile(const std::string& text, const std::string& file);

}  // namespace ds
