// Names for addresses in this process.
#pragma once

#include <string>

namespace ds {

/// "ds::Trainer::Run()+0x41 (ds-worker)", "fsync+0x1b (libc.so.6)"; without a symbol "ds-worker+0x3f41". Functions of
/// the executable that are not exported are found in its symbol table, unless that was stripped.
std::string SymbolOf(const void* address);

}  // namespace ds
