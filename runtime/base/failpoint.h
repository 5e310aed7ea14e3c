// Failpoints: named places where a test makes a rank die, fail or hang. For tests alone; without DS_FAILPOINT in the
// environment a failpoint is one comparison.
//
//   DS_FAILPOINT = ENTRY[;ENTRY]...
//   ENTRY        = NAME[,rank=R][,attempt=A][,hit=N],EFFECT
//   NAME         matched against the name passed to Failpoint; '*' stands for any run of characters
//   hit=N        the N-th match only, counted in this process (default: the first; of nan, inf, slow, short and
//                unsupported: every one)
//   EFFECT       kill (SIGKILL to this process), throw (RuntimeError), hang (never returns),
//                nan, inf (the result of the action gets such a number),
//                enospc, eio, unsupported (the operation at the place fails as if the system had said so),
//                slow=MS (it takes so many milliseconds longer), short (of a read or write: half is moved at first)
//
// Names: "step:5/BackwardWeight layer1.mlp mb0" (before an action of step 5, nan and inf after it: kind, what,
//        micro-batch),
//        "step:5/end" (the step is done, nothing of it is on disk),
//        in the order of a checkpoint, each before what it names: "checkpoint.snapshot", "checkpoint.shard",
//        "safetensors.write" (each block of at most 1 MiB), "safetensors.sync", "checkpoint.manifest",
//        "checkpoint.rename", "checkpoint.latest", "checkpoint.remove" (of an old one), "checkpoint.remove.files" (it
//        has lost its name),
//        "convert.piece", "convert.rename" (before a conversion's piece counts, before a token file gets its name),
//        "control.start", "control.shutdown" (of ds-launch's gRPC server), "local.shutdown" (of ds-agent's),
//        of the file tier (runtime/state/file_tier.h): "file_tier.tmpfile" (unsupported: files get a name, and lose
//        it), "file_tier.unlink" (before it is lost), "file_tier.reserve" (of space, for each folder),
//        "file_tier.fallocate" (unsupported: space is reserved by writing), "file_tier.direct", "file_tier.io_uring",
//        "file_tier.register" (unsupported: O_DIRECT, io_uring, registered buffers), "file_tier.read",
//        "file_tier.write" (of each block; slow: blocks of a lane one after another),
//        "arena" (nan: a rank's arena starts filled with NaN, so that a read before a write shows).
// Example: DS_FAILPOINT='step:5/BackwardWeight layer1.mlp*,rank=1,attempt=1,kill'
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace ds {

/// Whether any failpoint is set: callers need not build a name otherwise.
bool FailpointsSet();

/// Does what DS_FAILPOINT asks for at `name`, but for nan and inf; enospc and eio throw SystemError. Thread-safe.
void Failpoint(const std::string& name);

/// The same in front of an operation of the system: returns the errno that the operation is to fail with; 0: none.
/// A slow one is waited for here.
int FailpointError(const std::string& name);

/// What DS_FAILPOINT does to an operation that is under way beside others: its caller waits, and moves less, itself.
struct FailpointOutcome {
  int error = 0;      ///< errno; 0: none
  int64_t delay = 0;  ///< milliseconds that it takes longer
  bool cut = false;   ///< it moves half of its bytes
};
FailpointOutcome FailpointAt(const std::string& name);

/// The number that DS_FAILPOINT wants in the result of `name`: NaN or an infinity. Thread-safe.
std::optional<double> FailpointNumber(const std::string& name);

/// Tells the failpoints of the calling thread which rank and attempt it works for; without it, entries that name a
/// rank or an attempt do not match.
void SetFailpointScope(int rank, int64_t attempt);

/// Replaces what DS_FAILPOINT set: for tests in one process. Throws UsageError that names a bad entry.
void SetFailpoints(const std::string& entries);

}  // namespace ds
