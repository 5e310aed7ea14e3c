// DeepSpeed's .deepspeed_env. What is read prints as a file that reads back to the same.
#include "runtime/job/env_file.h"

#include "test/fuzz/fuzz.h"

using namespace ds;

namespace {

std::string Print(const std::vector<EnvVariable>& variables) {
  std::string text;
  for (const EnvVariable& variable : variables) {
    text += "export " + variable.name + "=\"";
    for (const char c : variable.value) {
      if (std::string_view("\"\\$`").find(c) != std::string_view::npos) text += '\\';
      text += c;
    }
    text += "\"\n";
  }
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(fuzz::View(data, size));
  std::vector<EnvVariable> variables;
  const fuzz::Memory limit{400, 1 << 20};
  if (!fuzz::Guarded(size, limit, {"env:"}, [&] { variables = ParseEnvFile(text, "env"); })) return 0;
  fuzz::Check(ParseEnvFile(Print(variables), "printed") == variables, "the variables print as others",
              Print(variables));
  return 0;
}
