// Keys in memory: kept from other processes of the same user, from core dumps, and no longer than they are needed.
#pragma once

#include <string>

namespace ds {

/// Environment variable that leaves a program open to debuggers and core dumps.
inline constexpr char kDebuggableVariable[] = "DS_DEBUGGABLE";

/// No other process without privileges reads this one's memory or environment or attaches to it, and no core file of it
/// is written (PR_SET_DUMPABLE); programs that it executes are not affected. Not where DS_DEBUGGABLE is set.
void KeepMemoryPrivate();

/// Overwrites the text, and empties it.
void Wipe(std::string& text);

}  // namespace ds
