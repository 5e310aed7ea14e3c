#include "runtime/base/json.h"

#include "runtime/base/error.h"
#include "runtime/base/json_field.h"
#include "runtime/base/key_index.h"
#include "runtime/base/text.h"

namespace ds {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

/// Whether `text` is a number as RFC 8259 writes it.
bool IsJsonNumber(std::string_view text) {
  size_t i = 0;
  const auto digits = [&] {
    const size_t start = i;
    while (i < text.size() && IsDigit(text[i])) ++i;
    return i > start;
  };
  if (i < text.size() && text[i] == '-') ++i;
  if (i < text.size() && text[i] == '0') {
    ++i;
  } else if (!digits()) {
    return false;
  }
  if (i < text.size() && text[i] == '.') {
    ++i;
    if (!digits()) return false;
  }
  if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    ++i;
    if (i < text.size() && (text[i] == '+' || text[i] == '-')) ++i;
    if (!digits()) return false;
  }
  return i == text.size();
}

class Parser {
 public:
  Parser(std::string_view text, const std::string& name, const JsonOptions& options,
         std::vector<std::string>* duplicates)
      : text_(text), options_(options), duplicates_(duplicates) {
    at_.file = name;
    at_.line = at_.column = 1;
    if (text_.substr(0, 3) == "\xEF\xBB\xBF") next_ = 3;
  }

  Value Document() {
    SkipSpace();
    if (AtEnd()) Fail("the text is empty; a JSON value is wanted");
    Value value = ReadValue(0);
    SkipSpace();
    if (!AtEnd()) Fail("text after the end of the JSON value; remove it");
    return value;
  }

  JsonField Field(const std::string& field) {
    JsonField found;
    SkipSpace();
    if (AtEnd()) Fail("the text is empty; a JSON value is wanted");
    found.object = Peek() == '{';
    if (found.object)
      SearchObject(field, 0, found);
    else
      SkipValue(0);
    SkipSpace();
    if (!AtEnd()) Fail("text after the end of the JSON value; remove it");
    return found;
  }

 private:
  bool AtEnd() const { return next_ >= text_.size(); }
  char Peek() const { return AtEnd() ? '\0' : text_[next_]; }
  bool Looks(std::string_view what) const { return text_.substr(next_, what.size()) == what; }

  char Take() {
    const char c = text_[next_++];
    if (c == '\n') {
      ++at_.line;
      at_.column = 1;
    } else {
      ++at_.column;
    }
    return c;
  }

  [[noreturn]] void Fail(const std::string& reason) const { FailAt(at_, reason); }
  [[noreturn]] void FailAt(const Position& where, const std::string& reason) const {
    throw UsageError(where.str() + ": " + reason);
  }

  /// The byte that stands here, for messages.
  std::string Here() const {
    if (AtEnd()) return "the end of the text";
    const size_t length = Utf8Length(text_.substr(next_));
    if (length == 0) return "a byte that is not UTF-8";
    if (Peek() == '\'') return "a single quote";
    if (length == 1 && (Peek() < ' ' || Peek() == 0x7F)) return "a control character";
    return "'" + std::string(text_.substr(next_, length)) + "'";
  }

  void SkipLine() {
    while (!AtEnd() && Peek() != '\n') Take();
  }

  void SkipBlockComment() {
    const Position start = at_;
    Take();
    Take();
    while (!Looks("*/")) {
      if (AtEnd()) FailAt(start, "the comment is not closed; add */");
      Take();
    }
    Take();
    Take();
  }

  void SkipSpace() {
    for (;;) {
      const char c = Peek();
      if (!AtEnd() && (c == ' ' || c == '\t' || c == '\n' || c == '\r')) {
        Take();
      } else if (options_.lenient && (c == '#' || Looks("//"))) {
        SkipLine();
      } else if (options_.lenient && Looks("/*")) {
        SkipBlockComment();
      } else {
        return;
      }
    }
  }

  void CheckDepth(int depth) const {
    if (depth > options_.max_depth) Fail("nested deeper than " + std::to_string(options_.max_depth) + " levels");
  }

  Value ReadValue(int depth) {
    Value value;
    value.where = at_;
    if (++values_ > options_.max_values) Fail("more than " + std::to_string(options_.max_values) + " values");
    CheckDepth(depth);
    switch (Peek()) {
      case '{':
        ReadObject(value, depth);
        break;
      case '[':
        ReadList(value, depth);
        break;
      case '"':
        value.kind = Value::Kind::scalar;
        value.quoted = true;
        value.text = ReadString();
        break;
      default:
        ReadPlain(value);
    }
    return value;
  }

  void ReadPlain(Value& value) {
    const Position start = at_;
    const size_t from = next_;
    while (!AtEnd() && (IsDigit(Peek()) || (Peek() >= 'a' && Peek() <= 'z') || (Peek() >= 'A' && Peek() <= 'Z') ||
                        Peek() == '+' || Peek() == '-' || Peek() == '.' || Peek() == '_')) {
      Take();
    }
    const std::string_view word = text_.substr(from, next_ - from);
    if (word.empty()) Fail("a value is wanted, not " + Here());
    if (word == "null") return;
    const std::string lower = Lower(word);
    if (word != lower && (lower == "true" || lower == "false")) {
      FailAt(start, "'" + std::string(word) + "' is not a JSON value; write " + lower);
    }
    if (word == "None") FailAt(start, "'None' is not a JSON value; write null");
    if (word != "true" && word != "false" && !IsJsonNumber(word)) {
      FailAt(start,
             "'" + std::string(word.substr(0, 80)) + "' is not a JSON value; strings are written in double quotes");
    }
    value.kind = Value::Kind::scalar;
    value.text = word;
  }

  /// After a list's or an object's item: true where another follows, false where `close` was taken.
  bool More(char close, const char* what, const Position& opened) {
    SkipSpace();
    const Position comma = at_;
    if (AtEnd()) FailAt(opened, std::string("the ") + what + " is not closed; add " + close);
    if (Peek() == close) {
      Take();
      return false;
    }
    if (Peek() != ',') Fail(std::string("',' or '") + close + "' is wanted, not " + Here());
    Take();
    SkipSpace();
    if (Peek() != close) return true;
    if (!options_.lenient) FailAt(comma, "a comma after the last item; remove it");
    Take();
    return false;
  }

  /// Takes the opening bracket; true where the list or object is empty.
  bool OpensEmpty(char close) {
    Take();
    SkipSpace();
    if (Peek() != close) return false;
    Take();
    return true;
  }

  void ReadList(Value& list, int depth) {
    list.kind = Value::Kind::list;
    if (OpensEmpty(']')) return;
    do {
      list.items.push_back(ReadValue(depth + 1));
    } while (More(']', "list", list.where));
  }

  /// A key, its colon and the space around them.
  std::string ReadKey(const Position& opened) {
    if (AtEnd()) FailAt(opened, "the object is not closed; add }");
    if (Peek() != '"') Fail("a key in double quotes is wanted, not " + Here());
    std::string key = ReadString();
    SkipSpace();
    if (Peek() != ':') Fail("':' is wanted after the key \"" + Shown(key) + "\", not " + Here());
    Take();
    SkipSpace();
    return key;
  }

  void ReadObject(Value& object, int depth) {
    object.kind = Value::Kind::map;
    if (OpensEmpty('}')) return;
    KeyIndex keys;
    do {
      const Position key_where = at_;
      std::string key = ReadKey(object.where);
      Value value = ReadValue(depth + 1);
      value.key_where = key_where;
      Insert(object, keys, std::move(key), std::move(value));
    } while (More('}', "object", object.where));
  }

  void Insert(Value& object, KeyIndex& keys, std::string key, Value value) {
    if (const Value* first = keys.Find(object, key)) {
      const std::string message = value.key_where.str() + ": " + Shown(key) + ": duplicate key; the first is at " +
                                  first->key_where.str() + ", remove one";
      if (duplicates_ == nullptr) throw UsageError(message);
      duplicates_->push_back(message);
      return;
    }
    object.fields.emplace_back(std::move(key), std::move(value));
  }

  /// Reads a value as ReadValue does, and keeps nothing of it.
  void SkipValue(int depth) {
    CheckDepth(depth);
    const Position opened = at_;
    Value plain;
    switch (Peek()) {
      case '{':
        if (OpensEmpty('}')) return;
        do {
          ReadKey(opened);
          SkipValue(depth + 1);
        } while (More('}', "object", opened));
        return;
      case '[':
        if (OpensEmpty(']')) return;
        do {
          SkipValue(depth + 1);
        } while (More(']', "list", opened));
        return;
      case '"':
        ReadString();
        return;
      default:
        ReadPlain(plain);
    }
  }

  void TakeField(int depth, JsonField& found) {
    const Position where = at_;
    if (found.depth == depth) FailAt(where, "the field is there twice; remove one");
    const bool outer = found.depth < 0 || depth < found.depth;
    const bool string = Peek() == '"';
    std::string text;
    if (string)
      text = ReadString();
    else
      SkipValue(depth + 1);
    if (!outer) return;
    found.depth = depth;
    found.string = string;
    found.text = std::move(text);
  }

  /// `field`: what is left of the name, seen from this object.
  void SearchObject(std::string_view field, int depth, JsonField& found) {
    CheckDepth(depth);
    const Position opened = at_;
    if (OpensEmpty('}')) return;
    do {
      const std::string key = ReadKey(opened);
      if (depth == 0 && found.names.size() < JsonField::kMostNames) found.names.push_back(key);
      const bool inside = field.size() > key.size() && field.starts_with(key) && field[key.size()] == '.';
      if (key == field)
        TakeField(depth, found);
      else if (inside && Peek() == '{')
        SearchObject(field.substr(key.size() + 1), depth + 1, found);
      else
        SkipValue(depth + 1);
    } while (More('}', "object", opened));
  }

  unsigned ReadHex4() {
    unsigned code = 0;
    for (int i = 0; i < 4; ++i) {
      const char c = Peek();
      unsigned digit = 0;
      if (IsDigit(c)) {
        digit = static_cast<unsigned>(c - '0');
      } else if (c >= 'a' && c <= 'f') {
        digit = static_cast<unsigned>(c - 'a' + 10);
      } else if (c >= 'A' && c <= 'F') {
        digit = static_cast<unsigned>(c - 'A' + 10);
      } else {
        Fail("four hexadecimal digits are wanted after \\u, not " + Here());
      }
      Take();
      code = code * 16 + digit;
    }
    return code;
  }

  void ReadUnicodeEscape(std::string& out, const Position& start) {
    const unsigned code = ReadHex4();
    if (code >= 0xDC00 && code <= 0xDFFF) FailAt(start, "a low surrogate without a high one before it");
    if (code < 0xD800 || code > 0xDBFF) return AppendUtf8(out, code);
    if (!Looks("\\u")) FailAt(start, "a high surrogate without a low one after it");
    Take();
    Take();
    const unsigned low = ReadHex4();
    if (low < 0xDC00 || low > 0xDFFF) FailAt(start, "a high surrogate without a low one after it");
    AppendUtf8(out, 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00));
  }

  void ReadEscape(std::string& out) {
    const Position start = at_;
    Take();
    if (AtEnd()) Fail("the string is not closed");
    switch (Peek()) {
      case '"':
      case '\\':
      case '/':
        out += Take();
        return;
      case 'b':
        out += '\b';
        break;
      case 'f':
        out += '\f';
        break;
      case 'n':
        out += '\n';
        break;
      case 'r':
        out += '\r';
        break;
      case 't':
        out += '\t';
        break;
      case 'u':
        Take();
        return ReadUnicodeEscape(out, start);
      default:
        FailAt(start, "unknown escape: \\ before " + Here());
    }
    Take();
  }

  /// The characters of a string up to the next one that needs a look: most of a text, at once.
  void TakePlain(std::string& out) {
    size_t end = next_;
    while (end < text_.size() && text_[end] >= 0x20 && text_[end] < 0x7F && text_[end] != '"' && text_[end] != '\\')
      ++end;
    out.append(text_.substr(next_, end - next_));
    at_.column += static_cast<int>(end - next_);
    next_ = end;
  }

  std::string ReadString() {
    const Position start = at_;
    std::string out;
    Take();
    for (;;) {
      TakePlain(out);
      if (AtEnd() || Peek() == '\n') FailAt(start, "the string is not closed; add a double quote");
      if (Peek() == '"') break;
      if (Peek() == '\\') {
        ReadEscape(out);
        continue;
      }
      if (static_cast<unsigned char>(Peek()) < 0x20) Fail("a control character in a string; write it as an escape");
      const size_t length = Utf8Length(text_.substr(next_));
      if (length == 0) Fail("a byte that is not UTF-8; save the file as UTF-8");
      for (size_t i = 0; i < length; ++i) out += Take();
    }
    Take();
    return out;
  }

  std::string_view text_;
  JsonOptions options_;
  std::vector<std::string>* duplicates_;
  size_t next_ = 0, values_ = 0;
  Position at_;
};

}  // namespace

Value ParseJson(std::string_view text, const std::string& name, const JsonOptions& options,
                std::vector<std::string>* duplicates) {
  return Parser(text, name, options, duplicates).Document();
}

JsonField FindJsonString(std::string_view text, const std::string& field, const std::string& name) {
  return Parser(text, name, JsonOptions(), nullptr).Field(field);
}

}  // namespace ds
