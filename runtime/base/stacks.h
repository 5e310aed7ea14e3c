// What threads are doing, for a process that makes no progress: its own by their call stacks, another's by what the
// kernel shows of it.
#pragma once

#include <sys/types.h>

#include <string>

namespace ds {

/// While it lives, the calling thread answers AllStacks() with its call stack. It gets a stack of its own for the
/// handler: code that uses the stack pointer for other things (oneDNN's kernels) is not disturbed.
class StackWitness {
 public:
  explicit StackWitness(std::string name);
  ~StackWitness();
  StackWitness(const StackWitness&) = delete;
  StackWitness& operator=(const StackWitness&) = delete;
};

/// The threads of this process: witnesses with their call stacks, the rest as ThreadsOf tells. Takes 0.3 s for each
/// witness that does not answer (in the kernel), 2 s at most.
std::string AllStacks();

/// What /proc shows of the threads of `pid`: name, state, where in the kernel each waits, its system call, and the
/// kernel's stack where this user may see it. Says so when there is no such process.
std::string ThreadsOf(pid_t pid);

/// Whether the process is stopped (SIGSTOP).
bool IsStopped(pid_t pid);

/// ThreadsOf every process in the process group `group`.
std::string ThreadsOfGroup(pid_t group);

}  // namespace ds
