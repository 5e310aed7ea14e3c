#include "runtime/job/problems.h"

#include <algorithm>

#include "runtime/base/text.h"

namespace ds {
namespace {

constexpr size_t kMostLines = 100;  // nobody reads more, and unknown keys each cost a search for the nearest

}  // namespace

const Value* FindPath(const Value& root, const std::string& path) {
  const Value* at = &root;
  size_t start = 0;
  while (at != nullptr && start <= path.size()) {
    const size_t dot = std::min(path.find('.', start), path.size());
    at = at->Find(path.substr(start, dot - start));
    start = dot + 1;
  }
  return at;
}

std::string OneLine(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
  }
  return text;
}

void Problems::Add(const std::string& key, const ValueError& error) {
  bad_.insert(key);
  AddLine(error.where().str() + ": " + key + ": " + error.shown() + ": " + error.reason());
}

void Problems::Add(const std::string& key, const std::string& reason) {
  bad_.insert(key);
  if (root_ == nullptr) return AddLine(key + ": " + reason);
  if (const Value* value = FindPath(*root_, key)) {
    return AddLine(value->where.str() + ": " + key + ": " + Describe(*value) + ": " + reason);
  }
  const Value* around = nullptr;
  for (size_t dot = key.rfind('.'); around == nullptr && dot != std::string::npos && dot > 0;
       dot = key.rfind('.', dot - 1)) {
    around = FindPath(*root_, key.substr(0, dot));
  }
  Position where = around != nullptr ? around->key_where : root_->where;
  if (around == nullptr) where.line = where.column = 0;
  AddLine(where.str() + ": " + key + ": " + reason);
}

void Problems::AddKey(const std::string& key, const Value& value, const std::string& reason) {
  bad_.insert(key);
  AddLine(value.key_where.str() + ": " + key + ": " + reason);
}

void Problems::AddLine(const std::string& line) {
  lines_.push_back(OneLine(line));
  if (lines_.size() < kMostLines) return;
  const std::string file = root_ != nullptr ? root_->where.file + ": " : "";
  lines_.push_back(file + "these are the first " + std::to_string(kMostLines) + " problems; mend them and try again");
  ThrowIfAny();
}

bool Problems::Good(std::initializer_list<const char*> keys) const {
  for (const char* key : keys) {
    if (bad_.count(key) > 0) return false;
  }
  return true;
}

std::string Problems::Blamed(std::initializer_list<const char*> keys) const {
  const char* written = nullptr;
  for (const char* key : keys) {
    const Value* value = root_ != nullptr ? FindPath(*root_, key) : nullptr;
    if (value != nullptr && value->where.file.starts_with("--set")) return key;
    if (value != nullptr && written == nullptr) written = key;
  }
  return written != nullptr ? written : *keys.begin();
}

void Problems::ThrowIfAny() const {
  if (!lines_.empty()) throw UsageError(Join(lines_, "\n"));
}

}  // namespace ds
