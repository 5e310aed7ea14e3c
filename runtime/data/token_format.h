// The bytes of a token file's header (docs/token-file.md): one place that knows them, for the reader and the writer.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>

#include "runtime/data/token_file.h"

namespace ds {

inline constexpr int64_t kTokenHeaderBytes = 128;
inline constexpr size_t kTokenizerNameBytes = 40;
using TokenHeader = std::array<char, kTokenHeaderBytes>;

TokenHeader PackTokenHeader(const TokenFileInfo& info);
/// Checks magic, byte order, version, checksum and every field. Throws RuntimeError: what is wrong.
TokenFileInfo UnpackTokenHeader(const TokenHeader& header);

/// Bytes of the file that `info` describes; -1: no file can have so many.
int64_t TokenFileBytes(const TokenFileInfo& info);
/// Where the documents' offsets begin.
int64_t TokenDocumentsAt(const TokenFileInfo& info);

}  // namespace ds
