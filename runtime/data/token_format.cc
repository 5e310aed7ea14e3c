#include "runtime/data/token_format.h"

#include <bit>
#include <cstring>

#include "runtime/base/error.h"

namespace ds {
namespace {

static_assert(std::endian::native == std::endian::little, "files are little-endian and are mapped as they are");

constexpr char kMagic[9] = "DSTOKENS";
constexpr uint32_t kByteOrder = 0x01020304, kVersion = 1;
enum Offset : size_t {
  at_magic = 0,
  at_byte_order = 8,
  at_version = 12,
  at_token_bytes = 16,
  at_shard = 20,
  at_shards = 24,
  at_zero = 28,
  at_vocabulary = 32,
  at_tokens = 40,
  at_documents = 48,
  at_tokenizer = 56,
  at_set = 96,
  at_payload = 104,
  at_second_zero = 112,
  at_checksum = 120,
};

template <class T>
void Put(TokenHeader& header, size_t at, T value) {
  std::memcpy(header.data() + at, &value, sizeof value);
}

template <class T>
T Get(const TokenHeader& header, size_t at) {
  T value;
  std::memcpy(&value, header.data() + at, sizeof value);
  return value;
}

}  // namespace

TokenHeader PackTokenHeader(const TokenFileInfo& info) {
  TokenHeader header{};
  std::memcpy(header.data() + at_magic, kMagic, 8);
  Put(header, at_byte_order, kByteOrder);
  Put(header, at_version, kVersion);
  Put(header, at_token_bytes, info.token_bytes);
  Put(header, at_shard, info.shard);
  Put(header, at_shards, info.shards);
  Put(header, at_vocabulary, info.vocabulary);
  Put(header, at_tokens, info.tokens);
  Put(header, at_documents, info.documents);
  if (info.tokenizer.size() > kTokenizerNameBytes)
    throw UsageError("the tokenizer's name `" + info.tokenizer + "` is longer than " +
                     std::to_string(kTokenizerNameBytes) + " bytes");
  std::memcpy(header.data() + at_tokenizer, info.tokenizer.data(), info.tokenizer.size());
  Put(header, at_set, info.set);
  Put(header, at_payload, info.payload);
  Put(header, at_checksum, Checksum({header.data(), at_checksum}));
  return header;
}

TokenFileInfo UnpackTokenHeader(const TokenHeader& header) {
  if (std::memcmp(header.data() + at_magic, kMagic, 8) != 0)
    throw RuntimeError("it does not begin as token files do; prepare one with `ds-convert data`");
  if (Get<uint32_t>(header, at_byte_order) != kByteOrder)
    throw RuntimeError("its byte order is not this machine's, or its header is damaged");
  if (uint32_t version = Get<uint32_t>(header, at_version); version != kVersion)
    throw RuntimeError("its version is " + std::to_string(version) + "; this program reads version " +
                       std::to_string(kVersion));
  if (Get<uint64_t>(header, at_checksum) != Checksum({header.data(), at_checksum}))
    throw RuntimeError("its header is damaged: the checksum does not match");
  TokenFileInfo info;
  info.token_bytes = Get<uint32_t>(header, at_token_bytes);
  info.shard = Get<uint32_t>(header, at_shard);
  info.shards = Get<uint32_t>(header, at_shards);
  info.vocabulary = Get<int64_t>(header, at_vocabulary);
  info.tokens = Get<int64_t>(header, at_tokens);
  info.documents = Get<int64_t>(header, at_documents);
  const char* name = header.data() + at_tokenizer;
  info.tokenizer.assign(name, ::strnlen(name, kTokenizerNameBytes));
  info.set = Get<uint64_t>(header, at_set);
  info.payload = Get<uint64_t>(header, at_payload);
  if (Get<uint32_t>(header, at_zero) != 0 || Get<uint64_t>(header, at_second_zero) != 0)
    throw RuntimeError("its header's reserved bytes are not zero");
  if (info.token_bytes != 2 && info.token_bytes != 4)
    throw RuntimeError("its tokens have " + std::to_string(info.token_bytes) + " bytes, not 2 or 4");
  if (info.shard >= info.shards)
    throw RuntimeError("it is shard " + std::to_string(info.shard) + " of " + std::to_string(info.shards));
  if (info.vocabulary <= 0 || info.vocabulary > int64_t{1} << (8 * info.token_bytes - (info.token_bytes == 4)))
    throw RuntimeError("its vocabulary of " + std::to_string(info.vocabulary) + " does not fit its tokens");
  if (info.documents > info.tokens || TokenFileBytes(info) < 0)
    throw RuntimeError("its counts of tokens and documents are impossible");
  return info;
}

int64_t TokenDocumentsAt(const TokenFileInfo& info) {
  return kTokenHeaderBytes + (info.tokens * info.token_bytes + 7) / 8 * 8;
}

int64_t TokenFileBytes(const TokenFileInfo& info) {
  constexpr int64_t kMost = int64_t{1} << 56;
  if (info.tokens < 0 || info.documents < 0 || info.tokens > kMost || info.documents > kMost) return -1;
  return TokenDocumentsAt(info) + info.documents * 8;
}

}  // namespace ds
