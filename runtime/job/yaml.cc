#include "runtime/job/yaml.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <map>
#include <optional>
#include <sstream>

#include "runtime/base/error.h"
#include "runtime/base/json.h"
#include "runtime/base/key_index.h"
#include "runtime/base/number.h"
#include "runtime/base/text.h"

namespace ds {
namespace {

constexpr size_t kMaxDepth = 100;
constexpr size_t kMaxNodes = 100'000;
constexpr size_t kMaxCopiedBytes = 16 << 20;
const std::string kTagPrefix = "tag:yaml.org,2002:";

[[noreturn]] void Fail(const Position& where, const std::string& reason) {
  throw UsageError(where.str() + ": " + reason);
}

/// Throws at the first byte that is not UTF-8 text.
void CheckText(std::string_view text, const std::string& name) {
  Position at{name, 1, 1};
  while (!text.empty()) {
    const size_t length = Utf8Length(text);
    if (length == 0) Fail(at, "a byte that is not UTF-8; save the file as UTF-8");
    const auto first = static_cast<unsigned char>(text[0]);
    if ((first < 0x20 && first != '\t' && first != '\n' && first != '\r') || first == 0x7F) {
      Fail(at, "a control character; remove it");
    }
    if (first == '\n') {
      ++at.line;
      at.column = 1;
    } else {
      at.column += static_cast<int>(length);
    }
    text.remove_prefix(length);
  }
}

/// What a copy of a value costs.
struct Weight {
  size_t nodes = 0, bytes = 0, depth = 0;  ///< bytes: of text; depth: 1 for a scalar
};

Weight Weigh(const Value& value) {
  Weight out{1, value.text.size(), 0};
  const auto add = [&](const Weight& part) {
    out.nodes += part.nodes;
    out.bytes += part.bytes;
    out.depth = std::max(out.depth, part.depth);
  };
  for (const Value& item : value.items) add(Weigh(item));
  for (const auto& [key, field] : value.fields) {
    out.bytes += key.size();
    add(Weigh(field));
  }
  ++out.depth;
  return out;
}

/// Builds a Value from yaml-cpp's events.
class Builder : public YAML::EventHandler {
 public:
  Builder(const std::string& name, std::vector<std::string>* duplicates) : name_(name), duplicates_(duplicates) {}

  Value root;

  Position At(const YAML::Mark& mark) const { return {name_, mark.line + 1, mark.column + 1}; }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (documents_++ > 0)
      Fail(At(mark), "a second document; a job file is one document, remove '---' and what follows");
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    Leaf(Value::Kind::null, mark, anchor, "", false);
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& text) override {
    // yaml-cpp tags plain scalars "?" and quoted or block ones "!"; an empty tag is a plain scalar too.
    bool quoted = tag == "!" || tag == kTagPrefix + "str";
    if (!quoted && !tag.empty() && tag != "?") {
      const std::string kind = CheckTag(mark, tag);
      if (kind == "null") return OnNull(mark, anchor);
      if (kind != "int" && kind != "float" && kind != "bool")
        Fail(At(mark), "the tag !!" + kind + " on a scalar; remove it");
    }
    Leaf(Value::Kind::scalar, mark, anchor, text, quoted);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end()) Fail(At(mark), "an alias inside of what it names; write the value out");
    if (WantsKey()) Fail(At(mark), "an alias as a key; write the key out");
    CountCopy(At(mark), found->second);
    Attach(found->second);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    Push(Value::Kind::list, "seq", mark, tag, anchor);
  }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    Push(Value::Kind::map, "map", mark, tag, anchor);
  }
  void OnSequenceEnd() override { Pop(); }
  void OnMapEnd() override { Pop(); }

 private:
  /// A list or map that is being filled.
  struct Frame {
    Value value;
    YAML::anchor_t anchor = 0;
    std::optional<std::string> key;  ///< of a map: the key whose value comes next
    Position key_where;
    KeyIndex keys;
  };

  bool WantsKey() const {
    return !frames_.empty() && frames_.back().value.kind == Value::Kind::map && !frames_.back().key;
  }

  void Count(const Position& where, size_t nodes) {
    nodes_ += nodes;
    if (nodes_ > kMaxNodes) Fail(where, "more than 100000 values, aliases counted; no job spec is that large");
  }

  /// Before `value` is copied, for an anchor or an alias: a short text must not grow without bound.
  void CountCopy(const Position& where, const Value& value) {
    const Weight weight = Weigh(value);
    Count(where, weight.nodes);
    copied_bytes_ += weight.bytes;
    if (copied_bytes_ > kMaxCopiedBytes) Fail(where, "anchors and aliases repeat more than 16 MiB of text");
    if (frames_.size() + weight.depth > kMaxDepth + 1) Fail(where, "nested deeper than 100 levels, aliases counted");
  }

  void Keep(YAML::anchor_t anchor, const Value& value) {
    if (anchor == 0) return;
    CountCopy(value.where, value);
    anchors_[anchor] = value;
  }

  /// The name after "!!"; an unknown tag is an error.
  std::string CheckTag(const YAML::Mark& mark, const std::string& tag) const {
    if (tag.substr(0, kTagPrefix.size()) != kTagPrefix)
      Fail(At(mark), "the tag " + tag + " has no meaning here; remove it");
    return tag.substr(kTagPrefix.size());
  }

  void Leaf(Value::Kind kind, const YAML::Mark& mark, YAML::anchor_t anchor, const std::string& text, bool quoted) {
    Count(At(mark), 1);
    if (WantsKey()) {
      if (kind == Value::Kind::null) Fail(At(mark), "an empty key; write KEY: VALUE (a comment begins with #)");
      if (text == "<<" && !quoted) Fail(At(mark), "merge keys (<<) are not read; write the keys out");
      frames_.back().key = text;
      frames_.back().key_where = At(mark);
      return;
    }
    Value value;
    value.kind = kind;
    value.where = At(mark);
    value.text = text;
    value.quoted = quoted;
    Keep(anchor, value);
    Attach(std::move(value));
  }

  void Push(Value::Kind kind, const std::string& kind_tag, const YAML::Mark& mark, const std::string& tag,
            YAML::anchor_t anchor) {
    Count(At(mark), 1);
    if (WantsKey()) Fail(At(mark), "a list or map as a key; keys are plain text");
    if (frames_.size() >= kMaxDepth) Fail(At(mark), "nested deeper than 100 levels");
    if (!tag.empty() && tag != "?" && tag != "!" && CheckTag(mark, tag) != kind_tag) {
      Fail(At(mark), "the tag " + tag + " does not fit; remove it");
    }
    Frame frame;
    frame.value.kind = kind;
    frame.value.where = At(mark);
    frame.anchor = anchor;
    frames_.push_back(std::move(frame));
  }

  void Pop() {
    Frame frame = std::move(frames_.back());
    frames_.pop_back();
    Keep(frame.anchor, frame.value);
    Attach(std::move(frame.value));
  }

  /// Puts a finished value where it belongs.
  void Attach(Value value) {
    if (frames_.empty()) {
      root = std::move(value);
      return;
    }
    Frame& parent = frames_.back();
    if (parent.value.kind == Value::Kind::list) {
      parent.value.items.push_back(std::move(value));
      return;
    }
    const std::string key = *parent.key;
    parent.key.reset();
    value.key_where = parent.key_where;
    if (const Value* first = parent.keys.Find(parent.value, key)) {
      const std::string message = value.key_where.str() + ": " + Shown(key) + ": duplicate key; the first is at " +
                                  first->key_where.str() + ", remove one";
      if (duplicates_ == nullptr) throw UsageError(message);
      duplicates_->push_back(message);
      return;
    }
    parent.value.fields.emplace_back(key, std::move(value));
  }

  std::string name_;
  std::vector<std::string>* duplicates_;
  int documents_ = 0;
  size_t nodes_ = 0, copied_bytes_ = 0;
  std::vector<Frame> frames_;
  std::map<YAML::anchor_t, Value> anchors_;
};

/// Whether line `number` (from 1) of `text`, or the one before it, is indented with a tab.
bool IndentedByTab(const std::string& text, int number) {
  std::istringstream lines(text);
  std::string line;
  for (int i = 1; i <= number && std::getline(lines, line); ++i) {
    size_t indent = std::min(line.find_first_not_of(" \t"), line.size());
    if (i + 1 >= number && line.substr(0, indent).find('\t') != std::string::npos) return true;
  }
  return false;
}

}  // namespace

Value ParseYaml(const std::string& written, const std::string& name, std::vector<std::string>* duplicates) {
  std::string text = written.substr(written.compare(0, 3, "\xEF\xBB\xBF") == 0 ? 3 : 0);
  CheckText(text, name);
  // yaml-cpp accepts a quoted scalar that is not closed where a newline ends the text; a comment there makes it an
  // error.
  if (!text.empty() && text.back() == '\n') text += '#';
  Builder builder(name, duplicates);
  try {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& error) {
    const Position where = error.mark.is_null() ? Position{name, 1, 1} : builder.At(error.mark);
    Fail(where, "not YAML: " + error.msg + (IndentedByTab(text, where.line) ? "; indent with spaces, not tabs" : ""));
  }
  return std::move(builder.root);
}

std::string YamlScalar(const std::string& text) {
  static const char* const kWords[] = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"};
  bool plain = !text.empty() && !IsNumber(text) && text.front() != '-' && text.front() != '.';
  for (const char* word : kWords) plain = plain && Lower(text) != word;
  for (const char c : text) {
    const bool safe = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
                      c == '-' || c == '.' || c == '/';
    plain = plain && safe;
  }
  return plain ? text : JsonString(text);  // YAML's double-quoted scalars read every JSON string
}

}  // namespace ds
