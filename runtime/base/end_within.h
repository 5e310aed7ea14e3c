// A bound on the end of this process, for where the code that ends it is not ours: gRPC's shutdown may wait for ever
// when the system refused it a thread or a descriptor.
#pragma once

#include <string>

namespace ds {

/// Unless it has ended, or EndInItsTime was called, this process is over `seconds` from now with exit code `code`,
/// whatever its threads do; `last_words`, where there are some, go to standard error then. Takes SIGALRM and
/// ITIMER_REAL of the process; a SIGALRM that comes before its time changes nothing, also after EndInItsTime; a later
/// call replaces an earlier one. Call on the main thread.
void EndWithin(double seconds, int code, const std::string& last_words = "");

/// Takes that back.
void EndInItsTime();

}  // namespace ds
