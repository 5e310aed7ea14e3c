// What keeps a job's processes from outliving it on this node. The agent runs under a *keeper*: a small process of the
// same program that starts nothing, listens to nothing and waits for the agent to end, however it ends; then it ends
// what the agent left. Levels, from the weakest:
//
//   process    The keeper is the subreaper above the agent: whatever loses its parent, in a session of its own or not,
//              becomes the keeper's child and is killed. The agent and its workers die with the process above them
//              (parent-death signal). What is left when keeper and agent are killed by the same blow: processes that
//              workers started.
//   cgroup     The agent and all that it starts are in a control group (version 2) of their own, which the keeper kills
//              as one, and every later agent in its place if the keeper was killed too.
//   namespace  The agent is process 1 of a process namespace with a /proc of its own: the kernel kills what is in it
//   when
//              the agent dies, and the agent dies with the keeper. Nothing is left whoever is killed. Programs see
//              other process numbers than the node's other users do, and without root a user namespace.
//
// auto: cgroup where the node allows it, else process. A namespace changes what programs see, so it is not chosen
// unasked.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

namespace ds {

struct Containment {
  std::string level;           ///< cgroup, namespace or process; empty: this process runs under no keeper
  std::string refused;         ///< why it is not what was asked for; empty: it is
  std::string cgroup_refused;  ///< why the level cgroup is not possible; empty: it is, or was not tried
  pid_t outer_pid = 0;         ///< this process as the node numbers it
};

/// Divides this process: returns in a child, which is the agent, contained as `mode` (auto, cgroup, namespace, process)
/// says or as far as the node allows; the caller stays behind as the keeper and ends, after everything else, as its
/// child did: with its exit code or by its signal. SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2 and SIGCONT are
/// passed on. `in_keeper` runs in the keeper once the agent is off: what it must not hold on to. Call while there is
/// one thread, before anything that may start others.
void Contain(const std::string& mode, const std::function<void()>& in_keeper = {});

/// Of this process.
const Containment& CurrentContainment();

/// What this node allows, strongest first, and why it does not allow the rest. `all`: tries the levels that are
/// stronger than what is in force too, which takes milliseconds; else those are left out.
struct ContainmentFacts {
  std::vector<std::string> possible;
  std::string refused;  ///< "cgroup: ...; namespace: ..."; empty: everything is allowed
};
ContainmentFacts FindContainment(bool all);

}  // namespace ds
