#include "agent/daemon/command.h"

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include "agent/daemon/daemon.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/base/standard_output.h"
#include "runtime/base/start_limits.h"
#include "runtime/base/text.h"

namespace ds {
namespace {

constexpr char kDaemonHelp[] =
    "ds-agent --daemon [--config FILE]\n"
    "Stays, and starts an agent for each job that a launcher of the same user hands over (ds-launch --bootstrap "
    "daemon).\n"
    "FILE (YAML): where to listen and the identity of this node; default: ~/.config/deepshard/node/daemon.yaml, as\n"
    "ds-launch --make-identity DIR --hostfile HOSTS writes it for each node. docs/operations.md lists its keys.\n"
    "SIGTERM, SIGINT or SIGHUP end it and the jobs that it runs; a restart reads the file again.\n";

int Run(int argc, char** argv) {
  std::string config;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--help" || argument == "-h") {
      std::fputs(kDaemonHelp, stdout);
      FlushStandardOutput();
      return 0;
    }
    if (argument == "--daemon") continue;
    if (argument.starts_with("--config=")) {
      config = argument.substr(9);
    } else if (argument == "--config" && i + 1 < argc) {
      config = argv[++i];
    } else {
      if (argument == "--config") throw UsageError("--config: a file's name is missing");
      throw UsageError("unknown option " + Shown(argument) + "; the nearest is " +
                       Nearest(argument, {"--daemon", "--config", "--help"}) +
                       "\nds-agent --daemon --help explains every option");
    }
    if (config.empty()) throw UsageError("--config: an empty name; write the configuration file's");
  }
  CheckStartLimits("ds-agent --daemon");
  const DaemonConfig settings =
      ReadDaemonConfig(config.empty() ? SiteFolder() / "node" / "daemon.yaml" : std::filesystem::path(config));
  if (!std::getenv("DS_LOG")) SetLogLevel(settings.log_level);
  return RunDaemon(settings);
}

}  // namespace

int DaemonMain(int argc, char** argv) {
  try {
    return Run(argc, argv);
  } catch (const Error& error) {
    LogError(std::string("ds-agent --daemon: ") + error.what());
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    LogError(std::string("ds-agent --daemon: ") + error.what());
    return 1;
  }
}

}  // namespace ds
