#include "runtime/job/env_file.h"

#include "runtime/base/error.h"
#include "test/catch.h"

namespace ds {
namespace {

std::string Show(const std::string& text) {
  std::string shown;
  for (const EnvVariable& variable : ParseEnvFile(text, "env")) shown += variable.name + "[" + variable.value + "]";
  return shown;
}

std::string Failure(const std::string& text) {
  try {
    return "accepted: " + Show(text);
  } catch (const UsageError& error) {
    return error.what();
  }
}

TEST_CASE(".deepspeed_env: what is read as meant") {
  CHECK(Show("A=1\nB=2\n") == "A[1]B[2]");
  CHECK(Show("A=1\r\nB=2\r\n") == "A[1]B[2]");  // CRLF
  CHECK(Show("\xEF\xBB\xBF"
             "A=1") == "A[1]");                                  // byte-order mark, no last newline
  CHECK(Show("\n  \n# note\n  # note=1\n\nA=1\n\n") == "A[1]");  // blank lines and comments, which crash DeepSpeed
  CHECK(Show("export A=1\n  export\tB=2\nexport=3\nexported=4\n") == "A[1]B[2]export[3]exported[4]");
  CHECK(Show("A=b=c==\n") == "A[b=c==]");
  CHECK(Show("A=\nB=''\nC=\"\"\n") == "A[]B[]C[]");
  CHECK(Show("A=$HOME `id` $(id) \\ {\"k\": [1, 'x']}\\\n") == "A[$HOME `id` $(id) \\ {\"k\": [1, 'x']}\\]");
  CHECK(Show("A=http://h/#part\n") == "A[http://h/#part]");
  CHECK(Show("A= 1 2 \t\n") == "A[1 2]");  // blanks at the ends go
  CHECK(Show("A=' 1 \\ \" # '\n") == "A[ 1 \\ \" # ]");
  CHECK(Show("A=\" \\\"q\\\" \\\\ \\$x \\` \\n ' \"  # note\n") == "A[ \"q\" \\ $x ` \\n ' ]");
  CHECK(Show("my.dotted-name=1\n_=2\n\xC3\xA9=3\n") == "my.dotted-name[1]_[2]\xC3\xA9[3]");
  CHECK(Show("A=\xFF\xFE\n") == "A[\xFF\xFE]");
  CHECK(Show("A=1\nA=2\n") == "A[1]A[2]");
  CHECK(Show("") == "");
  CHECK(Show("A=" + std::string(100000, 'x')) == "A[" + std::string(100000, 'x') + "]");
}

TEST_CASE(".deepspeed_env: errors say file:line:column, and no value") {
  CHECK(Failure("A=1\nsecret\n").starts_with("env:2:1: secret: '=' is absent"));
  CHECK(Failure("=1\n").starts_with("env:1:1: a name is wanted"));
  CHECK(Failure("A =1\n").starts_with("env:1:2: not a part of a name"));
  CHECK(Failure("\n A B=1\n").starts_with("env:2:3: not a part of a name"));
  CHECK(Failure("'A'=1\n").starts_with("env:1:1: not a part of a name"));
  CHECK(Failure("export  \n").starts_with("env:1:7: nothing after export"));
  CHECK(Failure("A='1\n").starts_with("env:1:3: the quote is not closed"));
  CHECK(Failure("A=\"1\\\"\n").starts_with("env:1:3: the quote is not closed"));
  CHECK(Failure("A='1' 2\n").starts_with("env:1:7: text after the closing quote"));
  CHECK(Failure("A=1 # note\n").starts_with("env:1:5: a comment or a part of the value?"));
  CHECK(Failure("A=# note\n").starts_with("env:1:3: a comment"));
  CHECK(Failure(std::string("A=1\0\n", 5)).starts_with("env:1:4: a zero byte"));
  const std::string both = Failure("A='hush\nB\n");
  CHECK(both.find("env:1:3") != std::string::npos);
  CHECK(both.find("\nenv:2:1") != std::string::npos);
  CHECK(both.find("hush") == std::string::npos);
}

}  // namespace
}  // namespace ds
