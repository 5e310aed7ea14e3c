// A real SLURM for a test, on this machine: munged, slurmctld and two slurmd (nodes n1 and n2), with a key, sockets,
// ports, spool folders and logs of their own in a folder that goes away.
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "test/fault/launched_job.h"

namespace ds::test {

/// Whether SLURM's and munge's programs are here; if not, the test says so and ends (with CI=true: fails).
bool HasSlurm();

std::string ReadText(const std::string& path);
void WriteText(const std::string& path, const std::string& text);

class SlurmCluster {
 public:
  /// Returns once both nodes are idle. Throws where that takes longer than 30 s.
  /// `node_seconds`: until SLURM gives a node up that does not answer (SlurmdTimeout).
  explicit SlurmCluster(int node_seconds = 100);
  ~SlurmCluster();  ///< cancels what runs, ends the daemons, and fails the test where anything is left
  SlurmCluster(const SlurmCluster&) = delete;
  SlurmCluster& operator=(const SlurmCluster&) = delete;

  const std::string& folder() const { return folder_.path(); }
  std::string path(const std::string& name) const { return folder() + "/" + name; }

  /// Runs `argv` in the folder with the cluster's environment to its end; its exit code.
  int Run(const std::vector<std::string>& argv, std::string* output = nullptr) const;
  /// `sbatch --parsable ARGUMENTS`: the job's number. Output goes to path("JOB.out") (of arrays: JOB_TASK.out).
  std::string Submit(const std::vector<std::string>& arguments) const;
  /// A batch script of our own, as path(name).
  std::string Script(const std::string& name, const std::string& body) const;

  /// A field of `scontrol show job`: "JobState", "ExitCode", "Restarts". Empty: no such job or field.
  std::string Field(const std::string& job, const std::string& name) const;
  /// Waits until the job has one of `states`; which. Fails the test after `seconds`.
  std::string Await(const std::string& job, const std::vector<std::string>& states, double seconds) const;
  std::string Output(const std::string& job) const { return ReadText(path(job + ".out")); }

  /// munged, slurmctld, n1 or n2: the daemon's process.
  pid_t daemon(const std::string& name) const { return daemons_.at(name); }
  void Kill(const std::string& daemon);   ///< SIGKILL, and reaps it
  void Start(const std::string& daemon);  ///< again

  /// Processes of jobs (not the daemons) whose executable has this name, of one node or of any.
  std::vector<pid_t> Processes(const std::string& executable, const std::string& node = "") const;
  /// Everything that SLURM started on a node and that is alive: step daemons and jobs.
  std::vector<pid_t> ProcessesOn(const std::string& node) const;

 private:
  std::vector<std::string> Environment() const;
  bool Up() const;
  void WriteConfiguration(int node_seconds);
  void EndDaemons();

  TemporaryFolder folder_;
  std::map<std::string, pid_t> daemons_;
};

}  // namespace ds::test
