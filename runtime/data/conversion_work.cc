#include "runtime/data/conversion_work.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <sstream>

#include "runtime/base/error.h"
#include "runtime/base/failpoint.h"
#include "runtime/base/file.h"
#include "runtime/base/json.h"
#include "runtime/base/number.h"

namespace ds {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFormat = "deepshard-conversion";
constexpr int kVersion = 1;
constexpr size_t kBlockBytes = 1 << 20;

std::string HeaderLine(const ConversionIdentity& identity, int token_bytes) {
  JsonWriter json;
  json.BeginObject().Field("format", kFormat).Field("version", kVersion).Field("token_bytes", token_bytes);
  json.Field("options", identity.options).Key("inputs").BeginList();
  for (const std::string& input : identity.inputs) json.Write(input);
  json.EndList().EndObject();
  return json.str();
}

/// Why the work in the folder is of no use, from its journal's first line.
std::string Difference(const std::string& line, const ConversionIdentity& identity) {
  try {
    const Value header = ParseJson(line, "journal");
    const Value* options = header.Find("options");
    const Value* inputs = header.Find("inputs");
    if (!options || !inputs || AsString(*options) != identity.options) return "its options are others";
    for (size_t i = 0; i < std::min(inputs->items.size(), identity.inputs.size()); ++i)
      if (AsString(inputs->items[i]) != identity.inputs[i])
        return "the input " + identity.inputs[i].substr(0, identity.inputs[i].find('\t')) +
               " is another or has changed";
    if (inputs->items.size() != identity.inputs.size()) return "it had another number of inputs";
    return "another version of this program made it";
  } catch (const Error&) {
    return "its journal cannot be read";
  }
}

/// XXH64 of bytes [begin, end) of a file. Throws where they are not there.
uint64_t ChecksumRange(const fs::path& path, int64_t begin, int64_t end) {
  const RandomFile file(path);
  ChecksumStream checksum;
  std::string block(kBlockBytes, '\0');
  while (begin < end) {
    const size_t count = static_cast<size_t>(std::min<int64_t>(end - begin, kBlockBytes));
    file.ReadExactly(begin, count, block.data());
    checksum.Update(block.data(), count);
    begin += static_cast<int64_t>(count);
  }
  return checksum.Value();
}

std::string Megabytes(int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f MB", static_cast<double>(bytes) / 1e6);
  return text;
}

}  // namespace

ConversionWork::ConversionWork(const fs::path& folder, const ConversionIdentity& identity, int token_bytes,
                               const std::function<void(const std::string&)>& say)
    : folder_(folder), token_bytes_(token_bytes) {
  MakeDirectories(folder_);
  Lock();
  const std::string header = HeaderLine(identity, token_bytes_);
  if (!TakeUp(identity, header, say)) StartAnew(header);
  tokens_ = std::make_unique<AppendFile>(tokens_path(), state_.tokens * token_bytes_);
  parts_ = std::make_unique<AppendFile>(parts_path(), state_.parts * int64_t{sizeof(PartRecord)});
}

ConversionWork::~ConversionWork() {
  if (lock_fd_ >= 0) ::close(lock_fd_);
}

void ConversionWork::Lock() {
  const fs::path path = folder_ / "lock";
  lock_fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (lock_fd_ < 0) throw SystemError("cannot create " + path.string(), errno);
  if (::flock(lock_fd_, LOCK_EX | LOCK_NB) == 0) return;
  const int error = errno;
  ::close(std::exchange(lock_fd_, -1));
  if (error == EWOULDBLOCK)
    throw UsageError("another conversion is writing to " + folder_.string() + "; wait for it, or end it");
  throw SystemError("cannot lock " + path.string(), error);
}

void ConversionWork::StartAnew(const std::string& header) {
  RemoveFiles();
  state_ = closed_ = ConversionState();
  pieces_ = 0;
  WriteFileAtomically(folder_ / "journal", header + "\n");
}

/// The totals of a journal's line, where it follows from `state` and the bytes are what it says.
bool ConversionWork::ReadPiece(const std::string& line, ConversionState& state) const {
  try {
    const Value piece = ParseJson(line, "journal");
    const auto count = [&](const char* key) {
      const Value* value = piece.Find(key);
      if (!value) throw RuntimeError(key);
      return AsInteger(*value);
    };
    ConversionState next{{count("input"), count("offset"), count("line")},
                         count("tokens"),
                         count("parts"),
                         count("empty"),
                         count("bytes"),
                         count("complete") != 0};
    if (next.tokens < state.tokens || next.parts < state.parts || state.complete) return false;
    const auto same = [&](const fs::path& path, int64_t begin, int64_t end, const char* key) {
      const Value* stated = piece.Find(key);
      return stated && ChecksumText(ChecksumRange(path, begin, end)) == AsString(*stated);
    };
    constexpr int64_t kRecord = sizeof(PartRecord);
    if (!same(tokens_path(), state.tokens * token_bytes_, next.tokens * token_bytes_, "tokens_xxh64") ||
        !same(parts_path(), state.parts * kRecord, next.parts * kRecord, "parts_xxh64"))
      return false;
    state = next;
    return true;
  } catch (const Error&) {  // torn by a crash, or its bytes are not there
    return false;
  }
}

bool ConversionWork::TakeUp(const ConversionIdentity& identity, const std::string& header,
                            const std::function<void(const std::string&)>& say) {
  const fs::path path = folder_ / "journal";
  std::error_code error;
  if (!fs::exists(path, error)) return false;
  std::istringstream journal(ReadFile(path));
  std::string line, kept = header + "\n";
  std::getline(journal, line);
  if (line != header) {
    say(folder_.string() + " is of another conversion and is discarded: " + Difference(line, identity));
    return false;
  }
  while (std::getline(journal, line)) {
    if (!ReadPiece(line, state_)) {
      say("piece " + std::to_string(pieces_ + 1) + " in " + folder_.string() + " is damaged; going on before it");
      break;
    }
    kept += line + "\n";
    ++pieces_;
  }
  closed_ = state_;
  WriteFileAtomically(path, kept);
  if (pieces_ > 0)
    say("going on with an interrupted conversion: " + Megabytes(state_.bytes) + " of text are " +
        std::to_string(state_.tokens) + " tokens already");
  return true;
}

void ConversionWork::Append(const Encoded& encoded, const InputPosition& after) {
  if (token_bytes_ == 2) {
    const std::vector<uint16_t> narrow(encoded.tokens.begin(), encoded.tokens.end());
    tokens_->Append(narrow.data(), narrow.size() * 2);
  } else {
    tokens_->Append(encoded.tokens.data(), encoded.tokens.size() * 4);
  }
  for (const EncodedPart& part : encoded.parts) {
    const PartRecord record{part.hash,
                            static_cast<uint64_t>(part.tokens) << 2 | (part.begins ? 2u : 0u) | (part.ends ? 1u : 0u)};
    parts_->Append(&record, sizeof record);
  }
  state_.at = after;
  state_.tokens += static_cast<int64_t>(encoded.tokens.size());
  state_.parts += static_cast<int64_t>(encoded.parts.size());
  state_.empty += encoded.empty;
  state_.bytes += encoded.bytes;
}

void ConversionWork::ClosePiece(bool complete) {
  state_.complete = complete;
  if (state_ == closed_) return;
  JsonWriter json;
  json.BeginObject();
  tokens_->Sync();
  parts_->Sync();
  json.Field("tokens_xxh64", ChecksumText(tokens_->TakeChecksum()));
  json.Field("parts_xxh64", ChecksumText(parts_->TakeChecksum()));
  json.Field("input", state_.at.input).Field("offset", state_.at.offset).Field("line", state_.at.line);
  json.Field("tokens", state_.tokens).Field("parts", state_.parts).Field("empty", state_.empty);
  json.Field("bytes", state_.bytes).Field("complete", complete ? 1 : 0).EndObject();
  Failpoint("convert.piece");
  LineFile(folder_ / "journal").Append(json.str());
  SyncPath(folder_ / "journal");
  closed_ = state_;
  ++pieces_;
}

void ConversionWork::RemoveFiles() {
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_)) {
    const std::string name = entry.path().filename().string();
    if (name == "journal" || name == "tokens" || name == "parts" || name == "documents" || name.starts_with("out.") ||
        name.starts_with("journal.tmp."))  // of a conversion that was killed while it wrote its journal
      files.push_back(entry.path());
  }
  for (const fs::path& path : files)
    if (::unlink(path.c_str()) != 0) throw SystemError("cannot remove " + path.string(), errno);
}

void ConversionWork::Remove() {
  RemoveFiles();
  ::unlink((folder_ / "lock").c_str());
  ::rmdir(folder_.c_str());
}

}  // namespace ds
