// Failpoints: named places where a test makes a rank die, fail or hang. For tests alone; without DS_FAILPOINT in the
// environment a failpoint is one comparison.
//
//   DS_FAILPOINT = ENTRY[;ENTRY]...
//   ENTRY        = NAME[,rank=R][,attempt=A][,hit=N],EFFECT
//   NAME         matched against the name passed to Failpoint; '*' stands for any run of characters
//   hit=N        the N-th match only, counted in this process (default: the first)
//   EFFECT       kill (SIGKILL to this process), throw (RuntimeError), hang (never returns)
//
// Names: "step:5/BackwardWeight layer1.mlp mb0" (before an action of step 5: kind, what, micro-batch),
//        "step:5/end" (the step is done, nothing of it is on disk),
//        "checkpoint.shard", "checkpoint.manifest", "checkpoint.rename" (before a checkpoint's shard, manifest,
//        commit).
// Example: DS_FAILPOINT='step:5/BackwardWeight layer1.mlp*,rank=1,attempt=1,kill'
#pragma once

#include <cstdint>
#include <string>

namespace ds {

/// Whether any failpoint is set: callers need not build a name otherwise.
bool FailpointsSet();

/// Does what DS_FAILPOINT asks for at `name`. Thread-safe.
void Failpoint(const std::string& name);

/// Tells the failpoints of the calling thread which rank and attempt it works for; without it, entries that name a
/// rank or an attempt do not match.
void SetFailpointScope(int rank, int64_t attempt);

/// Replaces what DS_FAILPOINT set: for tests in one process. Throws UsageError that names a bad entry.
void SetFailpoints(const std::string& entries);

}  // namespace ds
