#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <set>

#include "runtime/base/error.h"
#include "runtime/base/failpoint.h"
#include "runtime/data/token_file.h"
#include "runtime/data/token_format.h"

namespace ds {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBlockBytes = 1 << 20;

void WriteAt(int fd, const char* bytes, size_t count, int64_t at, const fs::path& path) {
  while (count > 0) {
    ssize_t n = ::pwrite(fd, bytes, count, at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw SystemError("cannot write " + path.string(), errno);
    bytes += n;
    at += n;
    count -= static_cast<size_t>(n);
  }
}

/// The offsets of a shard's documents while it is open.
fs::path DocumentsPath(const fs::path& temporary) { return temporary.string() + ".documents"; }

bool SameFile(const fs::path& path, const TokenFileInfo& info) {
  try {
    TokenFile file(path);
    if (PackTokenHeader(file.info()) != PackTokenHeader(info)) return false;
    file.VerifyChecksum();
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

struct TokenFileWriter::Shard {
  fs::path temporary;
  TokenFileInfo info;
  int64_t bytes = 0;  // written, header included
};

TokenFileWriter::TokenFileWriter(const fs::path& path, const std::string& tokenizer, int64_t vocabulary,
                                 int64_t shard_tokens, const fs::path& temporary)
    : prefix_(path), shard_tokens_(shard_tokens) {
  if (!IsTokenFileName(path))
    throw UsageError(path.string() + ": the name of a token file ends in .tok, as in " + path.string() + ".tok");
  prefix_.replace_extension();
  temporary_ = temporary.empty() ? fs::path(prefix_.string() + ".tok.tmp." + std::to_string(::getpid()))
                                 : temporary / ("out." + prefix_.filename().string());
  info_.tokenizer = tokenizer;
  info_.vocabulary = vocabulary;
  info_.token_bytes = TokenBytes(vocabulary);
}

TokenFileWriter::~TokenFileWriter() {
  if (fd_ >= 0) ::close(fd_);
  for (const Shard& shard : shards_) {
    ::unlink(shard.temporary.c_str());  // those committed have another name by now
    ::unlink(DocumentsPath(shard.temporary).c_str());
  }
}

fs::path TokenFileWriter::Name(size_t shard, size_t shards) const {
  char suffix[64] = ".tok";
  if (shard_tokens_ > 0) std::snprintf(suffix, sizeof suffix, "-%05zu-of-%05zu.tok", shard, shards);
  return prefix_.string() + suffix;
}

void TokenFileWriter::OpenShard() {
  if (shards_.size() >= 100000)
    throw UsageError("more than 100,000 shards of " + prefix_.string() + ": take a larger --shard-tokens");
  Shard shard;
  shard.info = info_;
  shard.info.shard = static_cast<uint32_t>(shards_.size());
  shard.bytes = kTokenHeaderBytes;
  shard.temporary = temporary_.string() + "." + std::to_string(shards_.size());
  fd_ = ::open(shard.temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd_ < 0) throw SystemError("cannot create " + shard.temporary.string(), errno);
  shards_.push_back(std::move(shard));
  checksum_ = ChecksumStream();
  documents_begin_ = std::make_unique<AppendFile>(DocumentsPath(shards_.back().temporary));
}

void TokenFileWriter::Flush() {
  Shard& shard = shards_.back();
  checksum_.Update(block_.data(), block_.size());
  WriteAt(fd_, block_.data(), block_.size(), shard.bytes, shard.temporary);
  shard.bytes += static_cast<int64_t>(block_.size());
  block_.clear();
}

void TokenFileWriter::CloseShard() {
  Shard& shard = shards_.back();
  Flush();
  block_.assign(static_cast<size_t>(TokenDocumentsAt(shard.info) - shard.bytes), '\0');
  documents_begin_->Flush();
  documents_begin_.reset();
  const fs::path documents = DocumentsPath(shard.temporary);
  const int64_t bytes = shard.info.documents * 8;
  const RandomFile file(documents);
  for (int64_t at = 0; at < bytes;) {
    const size_t before = block_.size();
    const size_t count = static_cast<size_t>(std::min<int64_t>(bytes - at, kBlockBytes));
    block_.resize(before + count);
    file.ReadExactly(at, count, block_.data() + before);
    Flush();
    at += static_cast<int64_t>(count);
  }
  Flush();
  ::unlink(documents.c_str());
  shard.info.payload = checksum_.Value();
  ::close(fd_);
  fd_ = -1;
}

void TokenFileWriter::BeginDocument() {
  begins_document_ = true;
  ++documents_;
}

void TokenFileWriter::Append(const std::vector<int32_t>& tokens) {
  size_t done = 0;
  while (done < tokens.size()) {
    if (fd_ < 0) OpenShard();
    Shard& shard = shards_.back();
    size_t count = std::min(tokens.size() - done, kBlockBytes / 4);
    if (shard_tokens_ > 0) count = std::min(count, static_cast<size_t>(shard_tokens_ - shard.info.tokens));
    if (begins_document_) {
      const uint64_t begin = static_cast<uint64_t>(shard.info.tokens);
      documents_begin_->Append(&begin, sizeof begin);
      ++shard.info.documents;
    }
    begins_document_ = false;
    for (size_t i = done; i < done + count; ++i) {
      if (tokens[i] < 0 || tokens[i] >= info_.vocabulary)
        throw RuntimeError("token " + std::to_string(tokens[i]) + " is not in the vocabulary of " +
                           std::to_string(info_.vocabulary));
      block_.append(reinterpret_cast<const char*>(&tokens[i]), info_.token_bytes);  // little-endian: the low bytes
    }
    done += count;
    tokens_ += static_cast<int64_t>(count);
    shard.info.tokens += static_cast<int64_t>(count);
    if (block_.size() >= kBlockBytes) Flush();
    if (shard.info.tokens == shard_tokens_) CloseShard();
  }
}

TokenFileWriter::Outcome TokenFileWriter::Commit(bool force) {
  if (fd_ >= 0) CloseShard();
  if (shards_.empty()) throw UsageError("no tokens to write to " + prefix_.string() + ".tok: the input holds no text");
  std::string payloads;
  for (const Shard& shard : shards_) payloads.append(reinterpret_cast<const char*>(&shard.info.payload), 8);
  std::set<fs::path> names;
  std::vector<bool> same;  // the file is there and holds exactly this
  std::error_code error;
  for (size_t i = 0; i < shards_.size(); ++i) {
    shards_[i].info.set = Checksum(payloads);
    shards_[i].info.shards = static_cast<uint32_t>(shards_.size());
    files_.push_back(Name(i, shards_.size()));
    names.insert(files_.back());
    same.push_back(SameFile(files_.back(), shards_[i].info));
    if (!same[i] && !force && fs::exists(files_[i], error))
      throw UsageError(files_[i].string() + " exists and holds something else; --force replaces it");
  }
  const std::vector<fs::path> others = OtherFiles(names);
  if (!force && !others.empty())
    throw UsageError(others[0].string() + " exists and is of another conversion to the same name; --force replaces it");
  if (others.empty() && std::find(same.begin(), same.end(), false) == same.end()) return Outcome::unchanged;

  for (const Shard& shard : shards_) {
    int fd = ::open(shard.temporary.c_str(), O_WRONLY | O_CLOEXEC);
    if (fd < 0) throw SystemError("cannot open " + shard.temporary.string(), errno);
    const TokenHeader header = PackTokenHeader(shard.info);
    try {
      WriteAt(fd, header.data(), header.size(), 0, shard.temporary);
      if (::fsync(fd) != 0) throw SystemError("cannot sync " + shard.temporary.string(), errno);
    } catch (...) {
      ::close(fd);
      throw;
    }
    ::close(fd);
  }
  for (size_t i = 0; i < shards_.size(); ++i) {
    if (same[i]) continue;
    Failpoint("convert.rename");
    if (::rename(shards_[i].temporary.c_str(), files_[i].c_str()) != 0)
      throw SystemError("cannot rename " + shards_[i].temporary.string() + " to " + files_[i].string(), errno);
  }
  for (const fs::path& path : others)
    if (::unlink(path.c_str()) != 0) throw SystemError("cannot remove " + path.string(), errno);
  SyncPath(prefix_.has_parent_path() ? prefix_.parent_path() : fs::path("."));
  return Outcome::written;
}

std::vector<fs::path> TokenFileWriter::OtherFiles(const std::set<fs::path>& names) const {
  std::vector<fs::path> candidates = TokenShardFiles(prefix_.string() + ".tok");
  candidates.push_back(prefix_.string() + ".tok");
  std::vector<fs::path> others;
  std::error_code error;
  for (const fs::path& path : candidates)
    if (!names.count(path) && fs::exists(path, error)) others.push_back(path);
  return others;
}

}  // namespace ds
