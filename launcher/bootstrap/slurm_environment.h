// The environment that srun is started with.
#pragma once

#include <string>
#include <vector>

namespace ds {

/// `environment` ("NAME=VALUE") without the variables that srun reads as options of its own. In a batch script SLURM
/// sets some of them to what was asked for the job as a whole (tasks, CPUs and GPUs a task, their binding, where output
/// goes): srun would lay the agents' step out by them. What describes the job (SLURM_JOB_ID, SLURM_JOB_NODELIST, ...)
/// stays.
std::vector<std::string> SrunEnvironment(std::vector<std::string> environment);

}  // namespace ds
