// gzip and Zstandard as byte sources, recognised by their first bytes.
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/data/byte_source.h"

namespace ds {
namespace {

constexpr size_t kBlockBytes = 1 << 16;
constexpr int kWindowLog = 27;  // what `zstd` itself reads without being asked for more

/// A source of which the first bytes were read already.
class PrefixedSource : public ByteSource {
 public:
  PrefixedSource(std::string prefix, std::unique_ptr<ByteSource> source)
      : ByteSource(source->name()), prefix_(std::move(prefix)), source_(std::move(source)) {}
  size_t Read(char* out, size_t most) override {
    if (at_ == prefix_.size()) return source_->Read(out, most);
    const size_t count = std::min(most, prefix_.size() - at_);
    std::memcpy(out, prefix_.data() + at_, count);
    at_ += count;
    return count;
  }
  int64_t position() const override { return source_->position() - static_cast<int64_t>(prefix_.size() - at_); }

 private:
  std::string prefix_;
  size_t at_ = 0;
  std::unique_ptr<ByteSource> source_;
};

/// What both decoders share: a block of compressed bytes, and how errors name their place.
class Decoder : public ByteSource {
 public:
  explicit Decoder(std::unique_ptr<ByteSource> source)
      : ByteSource(source->name()), block_(kBlockBytes), source_(std::move(source)) {}
  int64_t position() const override { return source_->position(); }

 protected:
  /// The next compressed bytes; empty at the end.
  std::string_view Refill() {
    const size_t count = source_->Read(block_.data(), block_.size());
    return {block_.data(), count};
  }
  /// `unread`: compressed bytes in the block that were not looked at.
  [[noreturn]] void Fail(size_t unread, const std::string& what) const {
    throw UsageError(name() + ": at byte " + std::to_string(position() - static_cast<int64_t>(unread)) +
                     " of the compressed file: " + what);
  }

 private:
  std::vector<char> block_;
  std::unique_ptr<ByteSource> source_;
};

class GzipSource : public Decoder {
 public:
  explicit GzipSource(std::unique_ptr<ByteSource> source) : Decoder(std::move(source)) {
    if (::inflateInit2(&stream_, 16 + MAX_WBITS) != Z_OK) throw RuntimeError("cannot start zlib: out of memory");
  }
  ~GzipSource() override { ::inflateEnd(&stream_); }

  size_t Read(char* out, size_t most) override {
    stream_.next_out = reinterpret_cast<Bytef*>(out);
    stream_.avail_out = static_cast<uInt>(std::min<size_t>(most, 1u << 30));
    const uInt wanted = stream_.avail_out;
    while (stream_.avail_out == wanted) {
      if (stream_.avail_in == 0) Fill();
      if (between_members_ && !NextMember()) return 0;
      const int result = ::inflate(&stream_, Z_NO_FLUSH);
      if (result == Z_STREAM_END)
        between_members_ = true;
      else if (result == Z_BUF_ERROR && ended_)
        Fail(0, "the gzip data is cut short");
      else if (result == Z_MEM_ERROR)
        throw RuntimeError("out of memory while reading " + name());
      else if (result != Z_OK && result != Z_BUF_ERROR)
        Fail(stream_.avail_in, std::string("the gzip data is damaged: ") + (stream_.msg ? stream_.msg : "no reason"));
    }
    return wanted - stream_.avail_out;
  }

 private:
  void Fill() {
    const std::string_view block = Refill();
    ended_ = block.empty();
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(block.data()));  // zlib does not write to it
    stream_.avail_in = static_cast<uInt>(block.size());
  }

  /// After a member: whether another one follows.
  bool NextMember() {
    for (;;) {
      while (stream_.avail_in > 0 && *stream_.next_in == 0) {
        ++stream_.next_in;
        --stream_.avail_in;
        padded_ = true;
      }
      if (stream_.avail_in > 0) break;
      Fill();
      if (ended_) return false;
    }
    if (padded_ || *stream_.next_in != 0x1f)
      Fail(stream_.avail_in, "something that is no gzip data follows the last member");
    ::inflateReset(&stream_);
    between_members_ = false;
    return true;
  }

  z_stream stream_{};
  bool between_members_ = false, padded_ = false, ended_ = false;
};

class ZstdSource : public Decoder {
 public:
  explicit ZstdSource(std::unique_ptr<ByteSource> source)
      : Decoder(std::move(source)), stream_(::ZSTD_createDStream()) {
    if (!stream_) throw RuntimeError("cannot start libzstd: out of memory");
    ::ZSTD_DCtx_setParameter(stream_, ZSTD_d_windowLogMax, kWindowLog);
  }
  ~ZstdSource() override { ::ZSTD_freeDStream(stream_); }

  size_t Read(char* out, size_t most) override {
    ZSTD_outBuffer output{out, most, 0};
    while (output.pos == 0) {
      if (input_.pos == input_.size && !more_output_) {
        const std::string_view block = Refill();
        if (block.empty()) {
          if (in_frame_) Fail(0, "the Zstandard data is cut short");
          return 0;
        }
        input_ = {block.data(), block.size(), 0};
      }
      const size_t result = ::ZSTD_decompressStream(stream_, &output, &input_);
      if (::ZSTD_isError(result)) Explain(result);
      in_frame_ = result != 0;
      more_output_ = in_frame_ && output.pos == output.size;  // the decoder may hold more than fitted
    }
    return output.pos;
  }

 private:
  [[noreturn]] void Explain(size_t result) const {
    const size_t unread = input_.size - input_.pos;
    if (::ZSTD_getErrorCode(result) == ZSTD_error_frameParameter_windowTooLarge)
      Fail(unread, "the Zstandard frame wants a window of more than 128 MiB; compress it again without --long=" +
                       std::to_string(kWindowLog + 1) + " or more");
    Fail(unread, std::string("the Zstandard data is damaged: ") + ::ZSTD_getErrorName(result));
  }

  ZSTD_DStream* stream_;
  ZSTD_inBuffer input_{nullptr, 0, 0};
  bool in_frame_ = false, more_output_ = false;
};

bool IsZstd(std::string_view begin) {
  if (begin.size() < 4) return false;
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(begin[i]); };
  if (begin.starts_with("\x28\xb5\x2f\xfd")) return true;
  return byte(0) >= 0x50 && byte(0) <= 0x5f && begin.substr(1, 3) == "\x2a\x4d\x18";  // a skippable frame
}

/// The name of a format that is not read; nullptr: none that is known.
const char* OtherFormat(std::string_view begin) {
  if (begin.starts_with(std::string_view("\xfd"
                                         "7zXZ\0",
                                         6)))
    return "xz";
  if (begin.size() >= 10 && begin.starts_with("BZh") && begin.substr(4, 6) == "1AY&SY") return "bzip2";
  if (begin.starts_with("\x04\x22\x4d\x18")) return "lz4";
  if (begin.starts_with("PK\x03\x04")) return "zip";
  if (begin.starts_with("PAR1")) return "Parquet";
  return nullptr;
}

}  // namespace

std::unique_ptr<ByteSource> Decompressed(std::unique_ptr<ByteSource> source) {
  std::string begin(10, '\0');
  begin.resize(ReadFully(*source, begin.data(), begin.size()));
  const std::string name = source->name();
  const bool gzip = begin.starts_with("\x1f\x8b"), zstd = IsZstd(begin);
  if (const char* other = OtherFormat(begin))
    throw UsageError(name + ": its bytes are " + other + ", which is not read; gzip, Zstandard and plain text are");
  if (!gzip && !zstd && IsCompressedName(name))
    throw UsageError(name +
                     ": its name says that it is compressed, its first bytes are neither gzip's nor Zstandard's");
  auto whole = std::make_unique<PrefixedSource>(begin, std::move(source));
  if (gzip) return std::make_unique<GzipSource>(std::move(whole));
  if (zstd) return std::make_unique<ZstdSource>(std::move(whole));
  return whole;
}

}  // namespace ds
