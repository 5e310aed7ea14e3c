#include "runtime/data/token_file.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/error.h"
#include "runtime/data/token_format.h"

namespace ds {
namespace {

namespace fs = std::filesystem;

}  // namespace

TokenFile::TokenFile(const fs::path& path) : path_(path) {
  map_.emplace(path);
  Open({map_->data(), map_->size()});
}

TokenFile::TokenFile(std::string_view bytes, const fs::path& name) : path_(name) { Open(bytes); }

void TokenFile::Open(std::string_view bytes) {
  bytes_ = bytes;
  auto fail = [&](const std::string& reason) { return RuntimeError(path_.string() + ": " + reason); };
  TokenHeader header;
  if (bytes_.size() < header.size())
    throw fail("a file of " + std::to_string(bytes_.size()) + " bytes is no token file, or it is cut short");
  std::memcpy(header.data(), bytes_.data(), header.size());
  try {
    info_ = UnpackTokenHeader(header);
  } catch (const Error& error) {
    throw fail(error.what());
  }
  const int64_t expected = TokenFileBytes(info_), size = static_cast<int64_t>(bytes_.size());
  if (size != expected)
    throw fail("it has " + std::to_string(size) + " bytes, its header states " + std::to_string(expected) +
               (size < expected ? ": it is cut short" : ": something was appended"));
}

void TokenFile::Read(int64_t begin, int64_t count, int32_t* out) const {
  if (begin < 0 || count < 0 || count > info_.tokens - begin)
    throw RuntimeError(path().string() + ": tokens [" + std::to_string(begin) + ", +" + std::to_string(count) +
                       ") of " + std::to_string(info_.tokens));
  const char* tokens = bytes_.data() + kTokenHeaderBytes;
  uint32_t most = 0;
  auto copy = [&](const auto* from) {
    for (int64_t i = 0; i < count; ++i) {
      most = std::max<uint32_t>(most, from[i]);
      out[i] = static_cast<int32_t>(from[i]);
    }
  };
  if (info_.token_bytes == 2)
    copy(reinterpret_cast<const uint16_t*>(tokens) + begin);
  else
    copy(reinterpret_cast<const uint32_t*>(tokens) + begin);
  if (most >= info_.vocabulary)
    throw RuntimeError(path().string() + ": token " + std::to_string(most) + " near position " + std::to_string(begin) +
                       " is not in its vocabulary of " + std::to_string(info_.vocabulary) +
                       ": the file is damaged; prepare it again");
}

int64_t TokenFile::Document(int64_t index) const {
  if (index < 0 || index >= info_.documents)
    throw RuntimeError(path().string() + ": document " + std::to_string(index) + " of " +
                       std::to_string(info_.documents));
  int64_t offset;
  std::memcpy(&offset, bytes_.data() + TokenDocumentsAt(info_) + index * 8, sizeof offset);
  return offset;
}

void TokenFile::VerifyChecksum() const {
  const size_t payload = bytes_.size() - kTokenHeaderBytes;
  const uint64_t checksum = Checksum({bytes_.data() + kTokenHeaderBytes, payload});
  if (checksum != info_.payload)
    throw RuntimeError(path().string() + ": it is damaged: its checksum is " + ChecksumText(checksum) +
                       ", its header states " + ChecksumText(info_.payload) + "; prepare it again");
}

void TokenFile::Verify() const {
  VerifyChecksum();
  std::vector<int32_t> block(1 << 16);
  for (int64_t at = 0; at < info_.tokens; at += static_cast<int64_t>(block.size()))
    Read(at, std::min<int64_t>(static_cast<int64_t>(block.size()), info_.tokens - at), block.data());
  for (int64_t at = kTokenHeaderBytes + info_.tokens * info_.token_bytes; at < TokenDocumentsAt(info_); ++at)
    if (bytes_[static_cast<size_t>(at)] != 0)
      throw RuntimeError(path().string() + ": the padding behind its tokens is not zero, at byte " +
                         std::to_string(at));
  int64_t last = -1;
  for (int64_t i = 0; i < info_.documents; ++i) {
    const int64_t begin = Document(i);
    if (begin <= last || begin >= info_.tokens)
      throw RuntimeError(path().string() + ": document " + std::to_string(i) + " begins at token " +
                         std::to_string(begin) + ", out of order");
    last = begin;
  }
}

bool IsTokenFileName(const fs::path& path) { return path.extension() == ".tok"; }

std::vector<fs::path> TokenShardFiles(const fs::path& path) {
  std::error_code error;
  const std::string prefix = path.stem().string() + "-";
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  std::vector<fs::path> files;
  for (fs::directory_iterator i(folder, error), end; !error && i != end; i.increment(error)) {
    const std::string name = i->path().filename().string();
    // PREFIX-NNNNN-of-NNNNN.tok
    if (name.size() != prefix.size() + 18 || !name.starts_with(prefix) || !IsTokenFileName(i->path())) continue;
    std::string middle = name.substr(prefix.size(), 14);
    for (char& c : middle)
      if (c >= '0' && c <= '9') c = '0';
    if (middle == "00000-of-00000") files.push_back(path.parent_path() / i->path().filename());  // no "./" is added
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<fs::path> TokenFileSet(const fs::path& path) {
  std::error_code error;
  if (fs::is_regular_file(path, error)) return {path};
  std::vector<fs::path> files = TokenShardFiles(path);
  for (size_t i = 0; i < files.size(); ++i) {
    const TokenFileInfo first = TokenFile(files[0]).info(), info = TokenFile(files[i]).info();
    if (info.set != first.set || info.shards != first.shards)
      throw RuntimeError(files[i].string() + " and " + files[0].string() +
                         " are not of one set; remove the one that is left from another conversion");
    if (info.shard != i || files.size() != info.shards)
      throw RuntimeError(path.string() + ": " + std::to_string(files.size()) + " of the set's " +
                         std::to_string(first.shards) + " shards are there; prepare it again");
  }
  return files;
}

}  // namespace ds
