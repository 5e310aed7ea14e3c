// Compressed bytes for tests.
#pragma once

#include <zlib.h>
#include <zstd.h>

#include <stdexcept>
#include <string>

namespace ds::test {

inline std::string Gzip(const std::string& text) {
  z_stream stream{};
  if (::deflateInit2(&stream, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) != Z_OK)
    throw std::runtime_error("deflateInit2");
  std::string out(::deflateBound(&stream, text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  if (::deflate(&stream, Z_FINISH) != Z_STREAM_END) throw std::runtime_error("deflate");
  out.resize(stream.total_out);
  ::deflateEnd(&stream);
  return out;
}

/// With a checksum, as `zstd` writes it.
inline std::string Zstd(const std::string& text) {
  ZSTD_CCtx* context = ::ZSTD_createCCtx();
  ::ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
  std::string out(::ZSTD_compressBound(text.size()), '\0');
  const size_t size = ::ZSTD_compress2(context, out.data(), out.size(), text.data(), text.size());
  ::ZSTD_freeCCtx(context);
  if (::ZSTD_isError(size)) throw std::runtime_error("ZSTD_compress2");
  out.resize(size);
  return out;
}

}  // namespace ds::test
