#include "runtime/data/megatron.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/checksum.h"
#include "runtime/base/error.h"

namespace ds {
namespace {

namespace fs = std::filesystem;

// The index: magic, version, dtype code, counts; sizes (int32) and pointers (int64, bytes) of the sequences, and for
// each document, and for the end, the number of its first sequence (int64). Little-endian, nothing is aligned.
constexpr std::string_view kMagic("MMIDIDX\0\0", 9);
constexpr size_t kVersionAt = 9, kDtypeAt = 17, kSequencesAt = 18, kDocumentsAt = 26, kHeaderBytes = 34;

struct Dtype {
  const char* name;
  int bytes;  // 0: no ids
  bool is_signed;
};
constexpr Dtype kDtypes[] = {{"none", 0, false},   {"uint8", 1, false},  {"int8", 1, true},
                             {"int16", 2, true},   {"int32", 4, true},   {"int64", 8, true},
                             {"float64", 0, true}, {"float32", 0, true}, {"uint16", 2, false}};

template <class T>
T Get(std::string_view bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

std::string Text(uint64_t value) { return std::to_string(value); }

fs::path TokensPath(fs::path index) { return index.replace_extension(".bin"); }

}  // namespace

MegatronIndex::MegatronIndex(std::string_view bytes, const std::string& name) : bytes_(bytes) {
  const auto fail = [&](const std::string& reason) { return RuntimeError(name + ": " + reason); };
  if (!bytes.starts_with(kMagic))
    throw fail(
        "it does not begin as an index of Megatron-LM does (magic MMIDIDX); only its memory-mapped format is read");
  if (bytes.size() < kHeaderBytes) throw fail("it is cut short in its header, at " + Text(bytes.size()) + " bytes");
  if (const uint64_t version = Get<uint64_t>(bytes, kVersionAt); version != 1)
    throw fail("its version is " + Text(version) + "; this program reads version 1");
  const uint8_t code = Get<uint8_t>(bytes, kDtypeAt);
  if (code == 0 || code >= std::size(kDtypes)) throw fail("its dtype code " + Text(code) + " is none of 1 to 8");
  dtype_ = kDtypes[code].name;
  token_bytes_ = kDtypes[code].bytes;
  token_signed_ = kDtypes[code].is_signed;
  if (token_bytes_ == 0) throw fail(std::string("its dtype is ") + dtype_ + "; token ids are integers");

  const uint64_t sequences = Get<uint64_t>(bytes, kSequencesAt), boundaries = Get<uint64_t>(bytes, kDocumentsAt);
  // Counts are compared with the file's size before anything is computed from them.
  if (sequences > bytes.size() / 12)
    throw fail("its sequence count " + Text(sequences) + " is more than it has room for");
  if (boundaries > bytes.size() / 8)
    throw fail("its document count " + Text(boundaries) + " is more than it has room for");
  if (boundaries == 0) throw fail("its document count is 0; there is at least the end of the last document");
  const size_t expected = kHeaderBytes + sequences * 12 + boundaries * 8;
  if (bytes.size() == expected + sequences && sequences > 0)
    throw fail("it holds a mode for each sequence, as multimodal data does; text alone is read");
  if (bytes.size() != expected)
    throw fail("it has " + Text(bytes.size()) + " bytes, its counts (" + Text(sequences) + " sequences, " +
               Text(boundaries) + " document boundaries) make " + Text(expected) +
               (bytes.size() < expected ? ": it is cut short" : ": something was appended"));
  sequences_ = static_cast<int64_t>(sequences);
  documents_ = static_cast<int64_t>(boundaries) - 1;

  for (int64_t i = 0; i < sequences_; ++i) {
    const int32_t size = Get<int32_t>(bytes, kHeaderBytes + static_cast<size_t>(i) * 4);
    if (size < 0) throw fail("sequence " + std::to_string(i) + " has a size of " + std::to_string(size));
    const int64_t pointer = Get<int64_t>(bytes, kHeaderBytes + sequences * 4 + static_cast<size_t>(i) * 8);
    if (pointer != tokens_ * token_bytes_)
      throw fail("sequence " + std::to_string(i) + " points to byte " + std::to_string(pointer) +
                 ", the sequences before it end at byte " + std::to_string(tokens_ * token_bytes_) +
                 "; only sequences one after the other are read");
    tokens_ += size;
    if (tokens_ > INT64_MAX / 16) throw fail("its sizes add up to more tokens than any file holds");
  }
  int64_t last = 0;
  for (int64_t i = 0; i <= documents_; ++i) {
    const int64_t first = Get<int64_t>(bytes, kHeaderBytes + sequences * 12 + static_cast<size_t>(i) * 8);
    if (i == 0 && first != 0) throw fail("document 0 begins at sequence " + std::to_string(first) + ", not at 0");
    if (first < last || first > sequences_)
      throw fail("document boundary " + std::to_string(i) + " is sequence " + std::to_string(first) + ", out of [" +
                 std::to_string(last) + ", " + std::to_string(sequences_) + "]");
    last = first;
  }
  if (last != sequences_)
    throw fail("its documents end at sequence " + std::to_string(last) + " of " + std::to_string(sequences_));
}

int64_t MegatronIndex::DocumentBegin(int64_t index) const {
  const size_t sequences = static_cast<size_t>(sequences_);
  const int64_t first = Get<int64_t>(bytes_, kHeaderBytes + sequences * 12 + static_cast<size_t>(index) * 8);
  if (first == sequences_) return tokens_;
  return Get<int64_t>(bytes_, kHeaderBytes + sequences * 4 + static_cast<size_t>(first) * 8) / token_bytes_;
}

MegatronData::MegatronData(const fs::path& index_path)
    : index_map_(index_path),
      tokens_map_(TokensPath(index_path)),
      index_({index_map_.data(), index_map_.size()}, index_path.string()) {
  const int64_t expected = index_.tokens() * index_.token_bytes(), size = static_cast<int64_t>(tokens_map_.size());
  if (size != expected)
    throw RuntimeError(tokens_map_.path().string() + ": it has " + std::to_string(size) + " bytes, " +
                       index_path.filename().string() + " states " + std::to_string(index_.tokens()) + " tokens of " +
                       std::to_string(index_.token_bytes()) + " bytes" +
                       (size < expected ? ": it is cut short" : ": something was appended, or the index is another's"));
}

void MegatronData::Read(int64_t begin, int64_t count, int64_t vocabulary, int32_t* out) const {
  if (begin < 0 || count < 0 || count > index_.tokens() - begin)
    throw RuntimeError(tokens_map_.path().string() + ": tokens [" + std::to_string(begin) + ", +" +
                       std::to_string(count) + ") of " + std::to_string(index_.tokens()));
  const char* bytes = tokens_map_.data();
  const auto copy = [&]<class T>(T) {
    for (int64_t i = 0; i < count; ++i) {
      T id;
      std::memcpy(&id, bytes + (begin + i) * static_cast<int64_t>(sizeof id), sizeof id);
      const int64_t token = static_cast<int64_t>(id);
      if (token < 0 || token >= vocabulary)
        throw RuntimeError(tokens_map_.path().string() + ": token " + std::to_string(token) + " at position " +
                           std::to_string(begin + i) + " is not in the vocabulary of " + std::to_string(vocabulary));
      out[i] = static_cast<int32_t>(token);
    }
  };
  switch (index_.token_bytes()) {
    case 1:
      return index_.token_signed() ? copy(int8_t{}) : copy(uint8_t{});
    case 2:
      return index_.token_signed() ? copy(int16_t{}) : copy(uint16_t{});
    case 4:
      return copy(int32_t{});
    default:
      return copy(int64_t{});
  }
}

uint64_t MegatronData::Identity() const {
  constexpr size_t kSample = 1 << 20;
  ChecksumStream checksum;
  checksum.Update(index_map_.data(), index_map_.size());
  const size_t size = tokens_map_.size(), count = std::min(size, kSample);
  if (count > 0) {
    checksum.Update(tokens_map_.data(), count);
    checksum.Update(tokens_map_.data() + (size - count), count);
  }
  return checksum.Value();
}

}  // namespace ds
