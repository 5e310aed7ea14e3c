#include "launcher/job/program.h"

#include <cstdlib>
#include <filesystem>

#include "runtime/base/text.h"

namespace ds {
namespace {

bool RunByPython(const LaunchOptions& options) {
  return options.module || (options.program[0].ends_with(".py") && !options.no_python);
}

}  // namespace

std::vector<std::string> ProgramArgv(const LaunchOptions& options) {
  std::vector<std::string> argv;
  if (RunByPython(options)) {
    const char* interpreter = std::getenv("PYTHON_EXEC");
    argv = {interpreter && *interpreter ? interpreter : "python3", "-u"};
    if (options.module) argv.push_back("-m");
  }
  argv.insert(argv.end(), options.program.begin(), options.program.end());
  return argv;
}

std::string ProgramName(const LaunchOptions& options) {
  if (options.module) return options.program[0];
  return RepairUtf8(std::filesystem::path(options.program[0]).filename().string());  // files hold it as text
}

}  // namespace ds
