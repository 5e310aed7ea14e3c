// ds-launch: trains a job, or runs a program, on every slot of the hosts.
#include <cstdio>
#include <exception>

#include "launcher/job.h"
#include "launcher/job_run.h"
#include "launcher/launch_options.h"
#include "proto/channel.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"

int main(int argc, char** argv) {
  ds::PrepareGrpc();
  try {
    ds::CommandLine command = ds::ParseLaunchCommandLine(argc, argv);
    if (!command.options) return 0;
    ds::Job job = ds::PrepareJob(*command.options);
    if (!job.options.dry_run) return ds::RunJob(job);
    std::fputs(ds::DescribeJob(job).c_str(), stdout);
    if (std::fflush(stdout) != 0 || std::ferror(stdout)) throw ds::RuntimeError("cannot write to standard output");
    return 0;
  } catch (const ds::Error& error) {
    ds::LogError(error.what());
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    ds::LogError(error.what());
    return 1;
  }
}
