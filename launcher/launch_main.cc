// ds-launch: trains a job, or runs a program, on every slot of the hosts.
#include <signal.h>

#include <cstdio>
#include <exception>

#include "launcher/control/site_identity.h"
#include "launcher/job/job.h"
#include "launcher/options/launch_options.h"
#include "launcher/run/job_run.h"
#include "proto/channel.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/base/secret.h"
#include "runtime/base/standard_output.h"
#include "runtime/job/filter.h"
#include "runtime/job/hostfile.h"

namespace {

int MakeIdentity(const ds::LaunchOptions& options) {
  const std::vector<ds::HostSlots> hosts = ds::ApplyFilters(ds::LoadHostfile(options.hostfile), options.filter);
  for (const std::string& line : ds::MakeSiteIdentity(options.make_identity, hosts)) std::printf("%s\n", line.c_str());
  std::printf("Copy %s/nodes/HOST to ~/.config/deepshard/node on each host, and start ds-agent --daemon there.\n",
              options.make_identity.c_str());
  ds::FlushStandardOutput();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  ds::PrepareGrpc();
  ds::KeepMemoryPrivate();
  ::signal(SIGPIPE, SIG_IGN);  // `| head` ends nothing
  try {
    ds::CommandLine command = ds::ParseLaunchCommandLine(argc, argv);
    if (!command.options) return 0;
    if (!command.options->make_identity.empty()) return MakeIdentity(*command.options);
    ds::Job job = ds::PrepareJob(*command.options);
    if (!job.options.dry_run) return ds::RunJob(job);
    std::fputs(ds::DescribeJob(job).c_str(), stdout);
    ds::FlushStandardOutput();
    return 0;
  } catch (const ds::Error& error) {
    ds::LogError(error.what());
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    ds::LogError(error.what());
    return 1;
  }
}
