// libds_sentencepiece.so: what it exports is one function, which OpenSentencePiece() calls.
#include "runtime/data/sentencepiece/library.h"

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <unordered_map>

namespace sentencepiece::logging {
void SetMinLogLevel(int level);  // exported, but in no header that is installed
}

namespace ds {
namespace {

class Model : public SentencePieceModel {
 public:
  sentencepiece::util::Status Load(std::string_view bytes) {
    return processor_.LoadFromSerializedProto({bytes.data(), bytes.size()});
  }
  int32_t pieces() const override { return processor_.GetPieceSize(); }
  int32_t end_of_sentence() const override { return processor_.eos_id(); }
  Kind KindOf(int32_t piece) const override {
    if (processor_.IsByte(piece)) return Kind::byte;
    if (processor_.IsControl(piece)) return Kind::control;
    if (processor_.IsUnused(piece)) return Kind::unused;
    return processor_.IsUnknown(piece) ? Kind::unknown : Kind::text;
  }
  std::string Text(int32_t piece) const override { return processor_.IdToPiece(piece); }
  std::string Encode(std::string_view text, std::vector<int32_t>& pieces) const override {
    std::vector<int> ids;
    const auto status = processor_.Encode({text.data(), text.size()}, &ids);
    if (!status.ok()) return status.ToString();
    pieces.insert(pieces.end(), ids.begin(), ids.end());
    return "";
  }

 private:
  sentencepiece::SentencePieceProcessor processor_;
};

class Sentences : public sentencepiece::SentenceIterator {
 public:
  explicit Sentences(const std::vector<std::string>& sentences) : sentences_(sentences) {}
  bool done() const override { return next_ == sentences_.size(); }
  void Next() override { ++next_; }
  const std::string& value() const override { return sentences_[next_]; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  const std::vector<std::string>& sentences_;
  size_t next_ = 0;
};

class Library : public SentencePieceLibrary {
 public:
  Library() { sentencepiece::logging::SetMinLogLevel(3); }  // what ends the program alone: errors are returned

  std::unique_ptr<SentencePieceModel> Load(std::string_view bytes, std::string& failure) const override {
    auto model = std::make_unique<Model>();
    const auto status = model->Load(bytes);
    if (status.ok()) return model;
    failure = status.ToString();
    return nullptr;
  }

  std::string Train(const std::map<std::string, std::string>& settings, const std::vector<std::string>& sentences,
                    std::string& failure) const override {
    Sentences iterator(sentences);
    std::string bytes;
    const auto status = sentencepiece::SentencePieceTrainer::Train(
        std::unordered_map<std::string, std::string>(settings.begin(), settings.end()), &iterator, &bytes);
    if (status.ok()) return bytes;
    failure = status.ToString();
    return "";
  }
};

}  // namespace
}  // namespace ds

extern "C" __attribute__((visibility("default"))) const ds::SentencePieceLibrary* ds_sentencepiece_library() {
  static const ds::Library library;
  return &library;
}
